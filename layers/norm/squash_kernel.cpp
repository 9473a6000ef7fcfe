#include <algorithm>
#include <cmath>
#include <numbers>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/layers/norm/row_blocks_kernel.hpp>
#include <steadygrad/layers/norm/squash_kernel.hpp>
#include <type_traits>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "layers/norm/squash_kernel.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, which fixes the target they are read for.
#include <steadygrad/core/kernels/math-inl.hpp>
#include <steadygrad/core/kernels/simd-inl.hpp>
#include <steadygrad/layers/norm/row_walk-inl.hpp>

// Derivation, element by element, u = dy and d = u * gamma * f'(z):
//   dx = alpha * d,   dalpha = sum of d * x,   dshift = sum of d,
//   dgamma = sum over rows of u * f(z),   dbeta = sum over rows of u.
// Its derivative: squash_double_backward.cpp.

#ifndef STEADY_LAYERS_NORM_SQUASH_WORK
#define STEADY_LAYERS_NORM_SQUASH_WORK
namespace steady {
namespace {

template <class T>
struct SquashWork {
  std::int64_t width, period;
  SquashCurve<T> curve;
  const T* x;
  const T* dy;  // backward
  detail::RowGains<T> gains;
  T* out;  // y or dx, dx may be null
};

/// Partial results of one block of rows.
template <class T>
struct SquashPartial {
  T* dgamma;  // null: neither gamma's nor beta's is wanted
  T* dbeta;
  double dalpha = 0;
  double dshift = 0;
};

inline double tanh_slope(double z) {
  const double e = std::exp(-2 * std::abs(z));
  return 4 * e / ((1 + e) * (1 + e));
}
inline double erf_slope(double z) { return 2 * std::numbers::inv_sqrtpi * std::exp(-z * z); }
inline double tanh_value(double z) { return std::tanh(z); }
inline double erf_value(double z) { return std::erf(z); }

}  // namespace
}  // namespace steady
#endif

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

using math::Float;
using Double = Vec<double>;

template <class F>
HWY_INLINE Double each(Double v, F f) {
  const Tag<double> d;
  HWY_ALIGN double buffer[HWY_MAX_BYTES / sizeof(double)];
  hn::Store(v, d, buffer);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) buffer[i] = f(buffer[i]);
  return hn::Load(d, buffer);
}

struct Tanh {
  HWY_INLINE Float value(Float z) const { return math::tanh(z); }
  HWY_INLINE Double value(Double z) const { return each(z, tanh_value); }
  HWY_INLINE Float slope(Float z) const {
    const math::Logistic p(hn::Add(z, z));
    return hn::Mul(fill(4.0F), hn::Mul(p.s, p.c));
  }
  HWY_INLINE Double slope(Double z) const { return each(z, tanh_slope); }
};

/// erf z = 2 cdf(sqrt(2) z) - 1, and by its Taylor series where that difference cancels.
struct Erf {
  HWY_INLINE Float value(Float z) const {
    const math::Normal p(hn::Mul(hn::Neg(hn::Abs(z)), fill(1.41421356F)));
    const Float large = hn::CopySign(fnma(fill(2.0F), p.cdf, fill(1.0F)), z);
    const Float series =
        math::polynomial(hn::Mul(z, z), 1.12837917e+00F, -3.76126389e-01F, 1.12837917e-01F,
                         -2.68661706e-02F, 5.22397763e-03F, -8.54832702e-04F, 1.20553330e-04F);
    const Float y = hn::IfThenElse(hn::Lt(hn::Abs(z), fill(0.5F)), hn::Mul(z, series), large);
    return hn::IfThenElse(hn::IsNaN(z), z, y);
  }
  HWY_INLINE Double value(Double z) const { return each(z, erf_value); }
  HWY_INLINE Float slope(Float z) const {
    const math::Normal p(hn::Mul(z, fill(1.41421356F)));
    return hn::IfThenElse(hn::IsNaN(z), z, hn::Mul(p.density, fill(2.82842712F)));
  }
  HWY_INLINE Double slope(Double z) const { return each(z, erf_slope); }
};

template <class T, class F>
HWY_FLATTEN void forward_rows(F f, const SquashWork<T>& a, std::int64_t begin, std::int64_t end) {
  const Vec<T> alpha = fill(a.curve.alpha), shift = fill(a.curve.shift);
  for (std::int64_t r = begin; r < end; ++r) {
    const T* x = a.x + r * a.width;
    T* y = a.out + r * a.width;
    for_pieces<T>(a.width, a.period, [&](std::int64_t i, std::int64_t at, std::int64_t n) HWY_ATTR {
      for_vectors<T>(n, [&](std::int64_t j, auto part, int) HWY_ATTR {
        const Vec<T> v = f.value(fma(alpha, load(x + i + j, part), shift));
        const Vec<T> g = load(a.gains.gamma + ((at + j) & a.gains.gamma_mask), part);
        const Vec<T> b = load(a.gains.beta + ((at + j) & a.gains.beta_mask), part);
        store(fma(v, g, b), y + i + j, part);
      });
    });
  }
}

template <class T, bool kInput, bool kParams, class F>
HWY_FLATTEN void backward_block(F f, const SquashWork<T>& a, std::int64_t begin, std::int64_t end,
                                SquashPartial<T>& p) {
  const Vec<T> alpha = fill(a.curve.alpha), shift = fill(a.curve.shift);
  for (std::int64_t r = begin; r < end; ++r) {
    const T* x = a.x + r * a.width;
    const T* dy = a.dy + r * a.width;
    T* dx = kInput ? a.out + r * a.width : nullptr;
    for_pieces<T>(a.width, a.period, [&](std::int64_t i, std::int64_t at, std::int64_t n) HWY_ATTR {
      Sum<T> sum, product;
      for_vectors<T>(n, [&](std::int64_t j, auto part, int k) HWY_ATTR {
        const Vec<T> u = load(dy + i + j, part);
        const Vec<T> v = load(x + i + j, part);
        const Vec<T> z = fma(alpha, v, shift);
        if constexpr (kParams) {
          T* dg = p.dgamma + at + j;
          T* db = p.dbeta + at + j;
          store(fma(u, f.value(z), load<T>(dg, part)), dg, part);
          store(hn::Add(u, load<T>(db, part)), db, part);
        }
        const Vec<T> g = load(a.gains.gamma + ((at + j) & a.gains.gamma_mask), part);
        const Vec<T> d = hn::Mul(hn::Mul(u, g), f.slope(z));
        sum.add(k, d);
        product.add_product(k, d, v);
        if constexpr (kInput) store(hn::Mul(alpha, d), dx + i + j, part);
      });
      p.dshift += static_cast<double>(sum.total());
      p.dalpha += static_cast<double>(product.total());
    });
  }
}

template <class T>
void forward_any(const SquashWork<T>& a, std::int64_t begin, std::int64_t end) {
  if (a.curve.f == Squash::Tanh) return forward_rows(Tanh{}, a, begin, end);
  forward_rows(Erf{}, a, begin, end);
}

template <class T, class F>
void backward_rows(F f, const SquashWork<T>& a, std::int64_t begin, std::int64_t end,
                   SquashPartial<T>& p) {
  if (p.dgamma == nullptr && a.out == nullptr) {
    backward_block<T, false, false>(f, a, begin, end, p);
  } else if (p.dgamma == nullptr) {
    backward_block<T, true, false>(f, a, begin, end, p);
  } else if (a.out == nullptr) {
    backward_block<T, false, true>(f, a, begin, end, p);
  } else {
    backward_block<T, true, true>(f, a, begin, end, p);
  }
}

template <class T>
void backward_any(const SquashWork<T>& a, std::int64_t begin, std::int64_t end,
                  SquashPartial<T>& p) {
  if (a.curve.f == Squash::Tanh) return backward_rows(Tanh{}, a, begin, end, p);
  backward_rows(Erf{}, a, begin, end, p);
}

}  // namespace

void squash_forward_f32(const SquashWork<float>& a, std::int64_t begin, std::int64_t end) {
  forward_any(a, begin, end);
}
void squash_forward_f64(const SquashWork<double>& a, std::int64_t begin, std::int64_t end) {
  forward_any(a, begin, end);
}
void squash_backward_f32(const SquashWork<float>& a, std::int64_t begin, std::int64_t end,
                         SquashPartial<float>& p) {
  backward_any(a, begin, end, p);
}
void squash_backward_f64(const SquashWork<double>& a, std::int64_t begin, std::int64_t end,
                         SquashPartial<double>& p) {
  backward_any(a, begin, end, p);
}

}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace steady {

using detail::check_span;
using detail::RepeatedGains;
using detail::RowPlan;

namespace {

HWY_EXPORT(squash_forward_f32);
HWY_EXPORT(squash_forward_f64);
HWY_EXPORT(squash_backward_f32);
HWY_EXPORT(squash_backward_f64);

template <class T>
auto forward_worker() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(squash_forward_f32);
  } else {
    return HWY_DYNAMIC_DISPATCH(squash_forward_f64);
  }
}

template <class T>
auto backward_worker() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(squash_backward_f32);
  } else {
    return HWY_DYNAMIC_DISPATCH(squash_backward_f64);
  }
}

}  // namespace

double detail::squash_slope(Squash f, double z) {
  return f == Squash::Tanh ? tanh_slope(z) : erf_slope(z);
}

template <class T>
void squash_forward(const RowShape& shape, const SquashCurve<T>& curve, std::span<const T> x,
                    std::span<const T> gamma, std::span<const T> beta, std::span<T> y) {
  const char* op = "squash_forward";
  RowPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "beta", beta.size(), shape.affine, true);
  check_span(op, "y", y.size(), shape.elements(), false);
  const RowPlan plan(shape);
  const RepeatedGains<T> gains(shape, gamma, beta);
  const SquashWork<T> work{shape.width, plan.period,  curve,   x.data(),
                           nullptr,     gains.view(), y.data()};
  const auto worker = forward_worker<T>();
  parallel_for(shape.rows, plan.task_rows,
               [&](std::int64_t begin, std::int64_t end) { worker(work, begin, end); });
}

std::int64_t squash_workspace(const RowShape& shape) { return RowPlan(shape).partials(2); }

template <class T>
void squash_backward(const RowShape& shape, const SquashCurve<T>& curve, std::span<const T> x,
                     std::span<const T> dy, std::span<const T> gamma, const SquashGradients<T>& out,
                     std::span<T> workspace) {
  const char* op = "squash_backward";
  RowPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "dy", dy.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "dx", out.dx.size(), shape.elements(), true);
  check_span(op, "dgamma", out.dgamma.size(), shape.affine, true);
  check_span(op, "dbeta", out.dbeta.size(), shape.affine, true);
  check_span(op, "dalpha", out.dalpha.size(), 1, true);
  check_span(op, "dshift", out.dshift.size(), 1, true);
  check_span(op, "workspace", workspace.size(), squash_workspace(shape), false);
  const RowPlan plan(shape);
  const RepeatedGains<T> gains(shape, gamma, {});
  const SquashWork<T> work{shape.width, plan.period,  curve,        x.data(),
                           dy.data(),   gains.view(), out.dx.data()};
  const bool params = !out.dgamma.empty() || !out.dbeta.empty();
  std::vector<SquashPartial<T>> partials(static_cast<std::size_t>(plan.blocks));
  const auto worker = backward_worker<T>();
  detail::for_row_blocks(plan, shape.rows, params ? workspace.data() : nullptr, 2 * plan.period,
                         [&](std::int64_t block, std::int64_t begin, std::int64_t end, T* room) {
                           SquashPartial<T>& partial = partials[static_cast<std::size_t>(block)];
                           partial = {room, params ? room + plan.period : nullptr};
                           worker(work, begin, end, partial);
                         });
  if (!out.dgamma.empty()) detail::merge_partials(shape, workspace.data(), 2, 0, out.dgamma);
  if (!out.dbeta.empty()) detail::merge_partials(shape, workspace.data(), 2, 1, out.dbeta);
  double dalpha = 0, dshift = 0;
  for (const SquashPartial<T>& partial : partials) {
    dalpha += partial.dalpha;
    dshift += partial.dshift;
  }
  if (!out.dalpha.empty()) out.dalpha[0] = static_cast<T>(dalpha);
  if (!out.dshift.empty()) out.dshift[0] = static_cast<T>(dshift);
}

template void squash_forward(const RowShape&, const SquashCurve<float>&, std::span<const float>,
                             std::span<const float>, std::span<const float>, std::span<float>);
template void squash_forward(const RowShape&, const SquashCurve<double>&, std::span<const double>,
                             std::span<const double>, std::span<const double>, std::span<double>);
template void squash_backward(const RowShape&, const SquashCurve<float>&, std::span<const float>,
                              std::span<const float>, std::span<const float>,
                              const SquashGradients<float>&, std::span<float>);
template void squash_backward(const RowShape&, const SquashCurve<double>&, std::span<const double>,
                              std::span<const double>, std::span<const double>,
                              const SquashGradients<double>&, std::span<double>);

}  // namespace steady
#endif
