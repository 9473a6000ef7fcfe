#include <algorithm>
#include <steadygrad/core/data/rows.hpp>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/parallel.hpp>

namespace steady {

Tensor copy_rows(const Tensor& source, std::span<const std::int64_t> rows) {
  STEADY_CHECK(ShapeError, source.defined() && source.rank() >= 1,
               "copy_rows: source must be [N, ...]; got {}", describe(source));
  const std::int64_t limit = source.dim(0);
  for (const std::int64_t row : rows) {
    STEADY_CHECK(ShapeError, row >= 0 && row < limit, "copy_rows: row must be in [0, {}); got {}",
                 limit, row);
  }
  const auto count = static_cast<std::int64_t>(rows.size());
  Tensor result = Tensor::empty(source.shape().with(0, count), source.dtype());
  const std::int64_t width = source.shape().numel(1, source.rank());
  constexpr std::int64_t ChunkElements = std::int64_t{1} << 16;
  dispatch_all(source.dtype(), [&]<class T>() {
    const T* from = source.data<T>().data();
    T* to = result.mutable_data<T>("copy_rows").data();
    parallel_for(count, ChunkElements / std::max<std::int64_t>(width, 1),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     std::copy_n(from + rows[static_cast<std::size_t>(i)] * width, width,
                                 to + i * width);
                   }
                 });
  });
  return result;
}

}  // namespace steady
