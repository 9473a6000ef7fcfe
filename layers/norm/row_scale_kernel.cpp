#include <algorithm>
#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/layers/norm/row_blocks_kernel.hpp>
#include <steadygrad/layers/norm/row_scale_kernel.hpp>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "layers/norm/row_scale_kernel.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, which fixes the target they are read for.
#include <steadygrad/core/kernels/simd-inl.hpp>
#include <steadygrad/layers/norm/row_walk-inl.hpp>

// Derivation, one row; <., .> is the sum over the row, u = dy, w = gamma * u, xhat = x * s, and k
// is 1 for the elements that are counted, 0 for the others. The scale depends on x through
//   ds = -l * s^2 * <k * xhat, dx>,   l as the header says, hence
//   d xhat = s * (dx - l * xhat * <k * xhat, dx>),
// and with the transpose of that map
//   dx = s * P(w),   P(v) = v - l * k * xhat * <xhat, v>;   dgamma = sum over rows of u * xhat.
// Its derivative: row_scale_double_backward.cpp.

#ifndef STEADY_LAYERS_NORM_ROW_SCALE_WORK
#define STEADY_LAYERS_NORM_ROW_SCALE_WORK
namespace steady {
namespace {

template <class T>
struct RowScaleWork {
  std::int64_t width, period;
  RowScaleRule rule;
  const T* x;
  const T* dy;  // backward
  detail::RowGains<T> gains;
  T* out;    // y or dx, dx may be null
  T* stats;  // written by forward where not null, read by backward
};

/// The sum where that of the vectors left the range of T.
template <class T>
double wide_sum(const T* x, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

/// s and l of a row whose squares sum up to q. A NaN stays one.
inline std::pair<double, double> scale_of(const RowScaleRule& rule, double q) {
  const auto n = static_cast<double>(rule.counted);
  if (rule.mean) return {1.0 / std::sqrt(q / n + rule.eps), 1.0 / n};
  const double norm = std::sqrt(q);
  return norm < rule.eps ? std::pair(1.0 / rule.eps, 0.0) : std::pair(1.0 / norm, 1.0);
}

}  // namespace
}  // namespace steady
#endif

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

template <class T>
HWY_INLINE Vec<T> gain(const RowScaleWork<T>& a, std::int64_t at, auto part) {
  return load(a.gains.gamma + (at & a.gains.gamma_mask), part);
}

template <class T>
HWY_FLATTEN void forward_rows(const RowScaleWork<T>& a, std::int64_t begin, std::int64_t end) {
  constexpr double Small = 1e-30, Large = 1e30;  // float loses squares beyond
  for (std::int64_t r = begin; r < end; ++r) {
    const T* x = a.x + r * a.width;
    T* y = a.out + r * a.width;
    double q = 0;
    for_pieces<T>(a.rule.counted, a.period,
                  [&](std::int64_t i, std::int64_t, std::int64_t n) HWY_ATTR {
                    Sum<T> s;
                    for_vectors<T>(n, [&](std::int64_t j, auto part, int k) HWY_ATTR {
                      const Vec<T> v = load(x + i + j, part);
                      s.add_product(k, v, v);
                    });
                    q += static_cast<double>(s.total());
                  });
    if (std::is_same_v<T, float> && !(q > Small && q < Large)) q = wide_sum(x, a.rule.counted);
    const auto [scale, slope] = scale_of(a.rule, q);
    if (a.stats != nullptr) {
      a.stats[2 * r] = static_cast<T>(scale);
      a.stats[2 * r + 1] = static_cast<T>(slope);
    }
    const Vec<T> factor = fill(static_cast<T>(scale));
    for_pieces<T>(a.width, a.period, [&](std::int64_t i, std::int64_t at, std::int64_t n) HWY_ATTR {
      for_vectors<T>(n, [&](std::int64_t j, auto part, int) HWY_ATTR {
        const Vec<T> xhat = hn::Mul(load(x + i + j, part), factor);
        store(hn::Mul(xhat, gain(a, at + j, part)), y + i + j, part);
      });
    });
  }
}

/// dx and the partial of dgamma for n elements of a row from element i on, whose gains are at `at`;
/// pull = l * <xhat, w> where they are counted, 0 elsewhere.
template <class T, bool kInput, bool kParams>
HWY_INLINE void backward_piece(const RowScaleWork<T>& a, const T* x, const T* dy, T* dx, T* dgamma,
                               std::int64_t i, std::int64_t at, std::int64_t n, Vec<T> scale,
                               Vec<T> pull) {
  for_vectors<T>(n, [&](std::int64_t j, auto part, int) HWY_ATTR {
    const Vec<T> u = load(dy + i + j, part);
    const Vec<T> xhat = hn::Mul(load(x + i + j, part), scale);
    if constexpr (kParams) {
      T* dg = dgamma + at + j;
      store(fma(u, xhat, load<T>(dg, part)), dg, part);
    }
    if constexpr (kInput) {
      const Vec<T> w = hn::Mul(u, gain(a, at + j, part));
      store(hn::Mul(scale, fnma(xhat, pull, w)), dx + i + j, part);
    }
  });
}

template <class T, bool kInput, bool kParams>
HWY_FLATTEN void backward_block(const RowScaleWork<T>& a, std::int64_t begin, std::int64_t end,
                                T* dgamma) {
  for (std::int64_t r = begin; r < end; ++r) {
    const T* x = a.x + r * a.width;
    const T* dy = a.dy + r * a.width;
    T* dx = kInput ? a.out + r * a.width : nullptr;
    const Vec<T> scale = fill(a.stats[2 * r]);
    double sum = 0;
    if constexpr (kInput) {
      for_pieces<T>(a.width, a.period,
                    [&](std::int64_t i, std::int64_t at, std::int64_t n) HWY_ATTR {
                      Sum<T> s;
                      for_vectors<T>(n, [&](std::int64_t j, auto part, int k) HWY_ATTR {
                        const Vec<T> w = hn::Mul(load(dy + i + j, part), gain(a, at + j, part));
                        s.add_product(k, w, hn::Mul(load(x + i + j, part), scale));
                      });
                      sum += static_cast<double>(s.total());
                    });
    }
    const Vec<T> pull = fill(static_cast<T>(sum * static_cast<double>(a.stats[2 * r + 1])));
    for_pieces<T>(a.width, a.period, [&](std::int64_t i, std::int64_t at, std::int64_t n) HWY_ATTR {
      const std::int64_t m = std::clamp<std::int64_t>(a.rule.counted - i, 0, n);
      backward_piece<T, kInput, kParams>(a, x, dy, dx, dgamma, i, at, m, scale, pull);
      backward_piece<T, kInput, kParams>(a, x, dy, dx, dgamma, i + m, at + m, n - m, scale,
                                         fill(T(0)));
    });
  }
}

template <class T>
void backward_rows(const RowScaleWork<T>& a, std::int64_t begin, std::int64_t end, T* dgamma) {
  if (dgamma == nullptr) {
    backward_block<T, true, false>(a, begin, end, dgamma);
  } else if (a.out == nullptr) {
    backward_block<T, false, true>(a, begin, end, dgamma);
  } else {
    backward_block<T, true, true>(a, begin, end, dgamma);
  }
}

}  // namespace

void row_scale_forward_f32(const RowScaleWork<float>& a, std::int64_t begin, std::int64_t end) {
  forward_rows(a, begin, end);
}
void row_scale_forward_f64(const RowScaleWork<double>& a, std::int64_t begin, std::int64_t end) {
  forward_rows(a, begin, end);
}
void row_scale_backward_f32(const RowScaleWork<float>& a, std::int64_t begin, std::int64_t end,
                            float* dgamma) {
  backward_rows(a, begin, end, dgamma);
}
void row_scale_backward_f64(const RowScaleWork<double>& a, std::int64_t begin, std::int64_t end,
                            double* dgamma) {
  backward_rows(a, begin, end, dgamma);
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

HWY_EXPORT(row_scale_forward_f32);
HWY_EXPORT(row_scale_forward_f64);
HWY_EXPORT(row_scale_backward_f32);
HWY_EXPORT(row_scale_backward_f64);

template <class T>
auto forward_worker() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(row_scale_forward_f32);
  } else {
    return HWY_DYNAMIC_DISPATCH(row_scale_forward_f64);
  }
}

template <class T>
auto backward_worker() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(row_scale_backward_f32);
  } else {
    return HWY_DYNAMIC_DISPATCH(row_scale_backward_f64);
  }
}

void check(const char* op, const RowShape& shape, std::int64_t counted) {
  RowPlan::check(op, shape);
  STEADY_CHECK(ShapeError, counted >= 1 && counted <= shape.width,
               "{}: needs 1 <= counted <= width; got counted {}, width {}", op, counted,
               shape.width);
}

}  // namespace

template <class T>
void row_scale_forward(const RowShape& shape, const RowScaleRule& rule, std::span<const T> x,
                       std::span<const T> gamma, std::span<T> y, std::span<T> stats) {
  const char* op = "row_scale_forward";
  check(op, shape, rule.counted);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "y", y.size(), shape.elements(), false);
  check_span(op, "stats", stats.size(), 2 * shape.rows, true);
  const RowPlan plan(shape);
  const RepeatedGains<T> gains(shape, gamma, {});
  const RowScaleWork<T> work{shape.width, plan.period,  rule,     x.data(),
                             nullptr,     gains.view(), y.data(), stats.data()};
  const auto worker = forward_worker<T>();
  parallel_for(shape.rows, plan.task_rows,
               [&](std::int64_t begin, std::int64_t end) { worker(work, begin, end); });
}

std::int64_t row_scale_workspace(const RowShape& shape) { return RowPlan(shape).partials(1); }

template <class T>
void row_scale_backward(const RowShape& shape, std::int64_t counted, std::span<const T> x,
                        std::span<const T> dy, std::span<const T> gamma, std::span<const T> stats,
                        std::span<T> dx, std::span<T> dgamma, std::span<T> workspace) {
  const char* op = "row_scale_backward";
  check(op, shape, counted);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "dy", dy.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "stats", stats.size(), 2 * shape.rows, false);
  check_span(op, "dx", dx.size(), shape.elements(), true);
  check_span(op, "dgamma", dgamma.size(), shape.affine, true);
  check_span(op, "workspace", workspace.size(), row_scale_workspace(shape), false);
  if (dx.empty() && dgamma.empty()) return;
  const RowPlan plan(shape);
  const RepeatedGains<T> gains(shape, gamma, {});
  const RowScaleWork<T> work{
      shape.width,  plan.period, {.counted = counted},        x.data(), dy.data(),
      gains.view(), dx.data(),   const_cast<T*>(stats.data())};
  const auto worker = backward_worker<T>();
  detail::for_row_blocks(plan, shape.rows, dgamma.empty() ? nullptr : workspace.data(), plan.period,
                         [&](std::int64_t, std::int64_t begin, std::int64_t end, T* partial) {
                           worker(work, begin, end, partial);
                         });
  if (!dgamma.empty()) detail::merge_partials(shape, workspace.data(), 1, 0, dgamma);
}

template void row_scale_forward(const RowShape&, const RowScaleRule&, std::span<const float>,
                                std::span<const float>, std::span<float>, std::span<float>);
template void row_scale_forward(const RowShape&, const RowScaleRule&, std::span<const double>,
                                std::span<const double>, std::span<double>, std::span<double>);
template void row_scale_backward(const RowShape&, std::int64_t, std::span<const float>,
                                 std::span<const float>, std::span<const float>,
                                 std::span<const float>, std::span<float>, std::span<float>,
                                 std::span<float>);
template void row_scale_backward(const RowShape&, std::int64_t, std::span<const double>,
                                 std::span<const double>, std::span<const double>,
                                 std::span<const double>, std::span<double>, std::span<double>,
                                 std::span<double>);

}  // namespace steady
#endif
