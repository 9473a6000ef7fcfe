#include <steadygrad/layers/norm/column_map.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady {
namespace {

constexpr std::int64_t ChunkElements = 1 << 14;

template <class T>
void apply(std::span<const T> x, std::span<const double> map, std::span<T> y) {
  const std::size_t features = map.size() / 4;
  const double* shift = map.data();
  const double* scale = shift + features;
  const double* gain = scale + features;
  const double* offset = gain + features;
  const auto width = static_cast<std::int64_t>(features);
  const auto rows = static_cast<std::int64_t>(x.size()) / width;
  const std::int64_t grain = std::max<std::int64_t>(1, ChunkElements / width);
  parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* in = x.data() + row * width;
      T* out = y.data() + row * width;
      for (std::size_t c = 0; c < features; ++c) {
        const double value = static_cast<double>(in[c]);
        out[c] = static_cast<T>((value - shift[c]) / scale[c] * gain[c] + offset[c]);
      }
    }
  });
}

/// The map of differences: neither shift nor offset.
Tensor slope_of(const Tensor& map) {
  Tensor slope = map.detached_copy();
  const std::span<double> lines = slope.mutable_data<double>("column_map");
  const std::size_t features = lines.size() / 4;
  std::ranges::fill(lines.first(features), 0.0);
  std::ranges::fill(lines.last(features), 0.0);
  return slope;
}

}  // namespace

Tensor column_map(const Tensor& x, const Tensor& map) {
  const char* op = "column_map";
  check_defined(op, "x", x);
  check_defined(op, "map", map);
  STEADY_CHECK(ShapeError,
               is_float(x.dtype()) && x.rank() >= 1 && x.dim(-1) >= 1 &&
                   map.dtype() == Dtype::F64 && map.shape() == (Shape{4, x.dim(-1)}),
               "{}: needs x [..., features] and an f64 map [4, features]; got x {}, map {}", op,
               describe(x), describe(map));
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    apply<T>(x.data<T>(), map.data<double>(), y.mutable_data<T>(op));
  });
  return record(op, std::move(y), {x}, {map}, [](BackwardCall& call) {
    call.give(0, [&] { return column_map(call.grad(), slope_of(call.saved(0))); });
  });
}

}  // namespace steady
