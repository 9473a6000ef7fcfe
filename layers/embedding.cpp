#include <steadygrad/layers/embedding.hpp>

#include <algorithm>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/embedding.hpp>
#include <steadygrad/core/ops/shaping.hpp>

namespace steady {
namespace {

/// `init` with one row of zeros.
Init with_zero_row(Init init, std::int64_t row) {
  return [init = std::move(init), row](Tensor& value, Random& random) {
    init(value, random);
    dispatch_float("initialize", value.dtype(), [&]<FloatElement T>() {
      const auto width = static_cast<std::size_t>(value.dim(1));
      std::ranges::fill(
          value.mutable_data<T>("initialize").subspan(static_cast<std::size_t>(row) * width, width),
          T{0});
    });
  };
}

Embedding::Options checked(Embedding::Options o) {
  STEADY_CHECK(Error, o.count >= 1 && o.dim >= 1,
               "Embedding: count and dim must be at least 1; got {} and {}", o.count, o.dim);
  STEADY_CHECK(Error, o.padding_idx >= -1 && o.padding_idx < o.count,
               "Embedding: padding_idx must be a row, or -1 for none; got {} of {} rows",
               o.padding_idx, o.count);
  if (!o.weight_init) o.weight_init = normal_init(0.0, 1.0);
  if (o.padding_idx >= 0) o.weight_init = with_zero_row(o.weight_init, o.padding_idx);
  return o;
}

}  // namespace

Embedding::Embedding(Options options)
    : o(checked(std::move(options))),
      weight(add_parameter("weight", {o.count, o.dim}, Role::Embedding, o.weight_init)) {}

Tensor Embedding::forward(const Tensor& ids) {
  return embedding(weight, ids, {.padding_idx = o.padding_idx});
}

Tensor Embedding::rows(std::int64_t first, std::int64_t count) const {
  STEADY_CHECK(Error, first >= 0 && count >= 0 && first + count <= o.count,
               "Embedding: the table has {} rows; got rows {} .. {}", o.count, first,
               first + count - 1);
  return first == 0 && count == o.count ? weight : slice(weight, 0, first, first + count);
}

std::string Embedding::describe() const {
  return fmt::format(
      "Embedding({}, {}{})", o.count, o.dim,
      o.padding_idx < 0 ? std::string() : fmt::format(", padding_idx={}", o.padding_idx));
}

}  // namespace steady
