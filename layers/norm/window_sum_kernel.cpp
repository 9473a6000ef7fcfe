#include <steadygrad/layers/norm/window_sum_kernel.hpp>

#include <algorithm>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/layers/norm/row_stats.hpp>

namespace steady {
namespace {

// One pass over the row per place in the window: c and c + offset both inside the row.
template <class T>
void sum_row(const WindowShape& shape, const T* x, T* y) {
  std::fill_n(y, shape.channels, T(0));
  const std::int64_t last = shape.channels - 1;
  for (std::int64_t offset = -std::min(shape.before, last); offset <= std::min(shape.after, last);
       ++offset) {
    const std::int64_t begin = std::max<std::int64_t>(-offset, 0);
    const std::int64_t end = std::min(shape.channels - offset, shape.channels);
    const T* from = x + offset;
    for (std::int64_t c = begin; c < end; ++c) y[c] += from[c];
  }
}

}  // namespace

template <class T>
void window_sum(const WindowShape& shape, std::span<const T> x, std::span<T> y) {
  const char* op = "window_sum";
  STEADY_CHECK(ShapeError,
               shape.rows >= 0 && shape.channels >= 0 && shape.before >= 0 && shape.after >= 0,
               "{}: needs rows, channels, before and after >= 0; got {}, {}, {}, {}", op,
               shape.rows, shape.channels, shape.before, shape.after);
  detail::check_span(op, "x", x.size(), shape.rows * shape.channels, false);
  detail::check_span(op, "y", y.size(), shape.rows * shape.channels, false);
  if (x.empty()) return;
  constexpr std::int64_t TaskElements = 16384;
  parallel_for(shape.rows, std::max<std::int64_t>(TaskElements / shape.channels, 1),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row) {
                   const std::int64_t at = row * shape.channels;
                   sum_row(shape, x.data() + at, y.data() + at);
                 }
               });
}

template void window_sum(const WindowShape&, std::span<const float>, std::span<float>);
template void window_sum(const WindowShape&, std::span<const double>, std::span<double>);

}  // namespace steady
