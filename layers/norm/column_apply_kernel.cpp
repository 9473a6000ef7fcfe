#include <algorithm>
#include <steadygrad/layers/norm/column_apply_kernel.hpp>
#include <steadygrad/layers/norm/row_stats.hpp>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "layers/norm/column_apply_kernel.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, which fixes the target it is read for.
#include <steadygrad/core/kernels/simd-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

// y = (x - mean) * scale + shift, line by line; the coefficients of a line stay in the first cache.
template <class T>
HWY_FLATTEN void affine(const T* x, T* y, const T* mean, const T* scale, const T* shift,
                        std::int64_t stride, std::int64_t lines, std::int64_t columns) {
  for (std::int64_t line = 0; line < lines; ++line, x += stride, y += stride) {
    for_vectors<T>(columns, [&](std::int64_t j, auto part, int) HWY_ATTR {
      const Vec<T> d = hn::Sub(load(x + j, part), load(mean + j, part));
      store(fma(d, load(scale + j, part), load(shift + j, part)), y + j, part);
    });
  }
}

// dx = a * dy + b * (x - mean) + k.
template <class T>
HWY_FLATTEN void gradient(const T* x, const T* dy, T* dx, const T* mean, const T* a, const T* b,
                          const T* k, std::int64_t stride, std::int64_t lines,
                          std::int64_t columns) {
  for (std::int64_t line = 0; line < lines; ++line, x += stride, dy += stride, dx += stride) {
    for_vectors<T>(columns, [&](std::int64_t j, auto part, int) HWY_ATTR {
      const Vec<T> d = hn::Sub(load(x + j, part), load(mean + j, part));
      const Vec<T> v = fma(load(b + j, part), d, load(k + j, part));
      store(fma(load(a + j, part), load(dy + j, part), v), dx + j, part);
    });
  }
}

}  // namespace

void column_affine_f32(const float* x, float* y, const float* mean, const float* scale,
                       const float* shift, std::int64_t stride, std::int64_t lines,
                       std::int64_t columns) {
  affine(x, y, mean, scale, shift, stride, lines, columns);
}
void column_affine_f64(const double* x, double* y, const double* mean, const double* scale,
                       const double* shift, std::int64_t stride, std::int64_t lines,
                       std::int64_t columns) {
  affine(x, y, mean, scale, shift, stride, lines, columns);
}
void column_gradient_f32(const float* x, const float* dy, float* dx, const float* mean,
                         const float* a, const float* b, const float* k, std::int64_t stride,
                         std::int64_t lines, std::int64_t columns) {
  gradient(x, dy, dx, mean, a, b, k, stride, lines, columns);
}
void column_gradient_f64(const double* x, const double* dy, double* dx, const double* mean,
                         const double* a, const double* b, const double* k, std::int64_t stride,
                         std::int64_t lines, std::int64_t columns) {
  gradient(x, dy, dx, mean, a, b, k, stride, lines, columns);
}

}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace steady {

using detail::check_span;
using detail::ColumnPlan;

namespace {

HWY_EXPORT(column_affine_f32);
HWY_EXPORT(column_affine_f64);
HWY_EXPORT(column_gradient_f32);
HWY_EXPORT(column_gradient_f64);

template <class T>
auto affine_worker() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(column_affine_f32);
  } else {
    return HWY_DYNAMIC_DISPATCH(column_affine_f64);
  }
}

template <class T>
auto gradient_worker() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(column_gradient_f32);
  } else {
    return HWY_DYNAMIC_DISPATCH(column_gradient_f64);
  }
}

// The coefficients of a piece of a line, the channels repeated as they are in it. Aligned: a vector
// that straddles two cache lines halves the speed of the loops that read these.
template <class T>
struct alignas(64) Coefficients {
  T at[ColumnPlan::ColumnBlock];

  Coefficients(const ColumnPlan& plan, std::span<const T> values, std::int64_t column,
               std::int64_t columns) {
    plan.for_channels(column, columns, [&](std::int64_t j, std::int64_t c) {
      at[j] = values[static_cast<std::size_t>(c)];
    });
  }
};

// Runs body(offset of the piece, lines, columns, first channel) for all pieces and for the rest.
template <class Body>
void for_pieces_and_rest(const ColumnPlan& plan, Body body) {
  plan.for_pieces(true, [&](std::int64_t, std::int64_t line, std::int64_t lines,
                            std::int64_t column, std::int64_t columns) {
    body(line * plan.period + column, lines, columns, column);
  });
  if (plan.rest_rows > 0) {
    body(plan.lines * plan.period, std::int64_t{1}, plan.rest_rows * plan.channels,
         std::int64_t{0});
  }
}

}  // namespace

template <class T>
void column_affine(const ColumnShape& shape, const ColumnAffine<T>& c, std::span<const T> x,
                   std::span<T> y) {
  const char* op = "column_affine";
  ColumnPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "mean", c.mean.size(), shape.channels, false);
  check_span(op, "scale", c.scale.size(), shape.channels, false);
  check_span(op, "shift", c.shift.size(), shape.channels, false);
  check_span(op, "y", y.size(), shape.elements(), false);
  const ColumnPlan plan(shape);
  const auto worker = affine_worker<T>();
  for_pieces_and_rest(plan, [&](std::int64_t offset, std::int64_t lines, std::int64_t columns,
                                std::int64_t column) {
    const Coefficients<T> mean(plan, c.mean, column, columns);
    const Coefficients<T> scale(plan, c.scale, column, columns);
    const Coefficients<T> shift(plan, c.shift, column, columns);
    worker(x.data() + offset, y.data() + offset, mean.at, scale.at, shift.at, plan.period, lines,
           columns);
  });
}

template <class T>
void column_gradient(const ColumnShape& shape, const ColumnGradient<T>& c, std::span<const T> x,
                     std::span<const T> dy, std::span<T> dx) {
  const char* op = "column_gradient";
  ColumnPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "dy", dy.size(), shape.elements(), false);
  check_span(op, "mean", c.mean.size(), shape.channels, false);
  check_span(op, "a", c.a.size(), shape.channels, false);
  check_span(op, "b", c.b.size(), shape.channels, false);
  check_span(op, "k", c.k.size(), shape.channels, false);
  check_span(op, "dx", dx.size(), shape.elements(), false);
  const ColumnPlan plan(shape);
  const auto worker = gradient_worker<T>();
  for_pieces_and_rest(plan, [&](std::int64_t offset, std::int64_t lines, std::int64_t columns,
                                std::int64_t column) {
    const Coefficients<T> mean(plan, c.mean, column, columns);
    const Coefficients<T> a(plan, c.a, column, columns);
    const Coefficients<T> b(plan, c.b, column, columns);
    const Coefficients<T> k(plan, c.k, column, columns);
    worker(x.data() + offset, dy.data() + offset, dx.data() + offset, mean.at, a.at, b.at, k.at,
           plan.period, lines, columns);
  });
}

template void column_affine(const ColumnShape&, const ColumnAffine<float>&, std::span<const float>,
                            std::span<float>);
template void column_affine(const ColumnShape&, const ColumnAffine<double>&,
                            std::span<const double>, std::span<double>);
template void column_gradient(const ColumnShape&, const ColumnGradient<float>&,
                              std::span<const float>, std::span<const float>, std::span<float>);
template void column_gradient(const ColumnShape&, const ColumnGradient<double>&,
                              std::span<const double>, std::span<const double>, std::span<double>);

}  // namespace steady
#endif
