#include <algorithm>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/layers/norm/rms_norm_kernel.hpp>
#include <steadygrad/layers/norm/row_blocks_kernel.hpp>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "layers/norm/rms_norm_kernel.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, which fixes the target they are read for.
#include <steadygrad/layers/norm/rms_norm_backward-inl.hpp>
#include <steadygrad/layers/norm/rms_norm_forward-inl.hpp>

// Derivation, one row of D elements; m(.) is the mean over the row, u = dy, g the gain, w = g * u:
//   xhat = x * r,  r = (m(x^2) + eps)^(-1/2),  y = g * xhat.
// From d r = -r^2 m(xhat dx) follows d xhat = r * P(dx) with
//   P(v) = v - xhat * m(v * xhat),
// symmetric, hence
//   dx = r * P(w),   dgamma = sum over rows of u * xhat.
// The gain 1 + gamma has the derivative of gamma.
// Its derivative: rms_norm_double_backward.cpp.

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {

void rms_norm_forward_f32(const RmsNormWork<float>& a, std::int64_t begin, std::int64_t end) {
  forward_rows(a, begin, end);
}
void rms_norm_forward_f64(const RmsNormWork<double>& a, std::int64_t begin, std::int64_t end) {
  forward_rows(a, begin, end);
}
void rms_norm_backward_f32(const RmsNormWork<float>& a, std::int64_t begin, std::int64_t end,
                           float* dgamma) {
  backward_rows(a, begin, end, dgamma);
}
void rms_norm_backward_f64(const RmsNormWork<double>& a, std::int64_t begin, std::int64_t end,
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
using detail::streams;

namespace {

HWY_EXPORT(rms_norm_forward_f32);
HWY_EXPORT(rms_norm_forward_f64);
HWY_EXPORT(rms_norm_backward_f32);
HWY_EXPORT(rms_norm_backward_f64);

template <class T>
auto forward_worker() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(rms_norm_forward_f32);
  } else {
    return HWY_DYNAMIC_DISPATCH(rms_norm_forward_f64);
  }
}

template <class T>
auto backward_worker() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(rms_norm_backward_f32);
  } else {
    return HWY_DYNAMIC_DISPATCH(rms_norm_backward_f64);
  }
}

template <class T>
T gain_offset(bool unit_offset, std::span<const T> gamma) {
  return unit_offset && !gamma.empty() ? T(1) : T(0);
}

}  // namespace

template <class T>
void rms_norm_forward(const RowShape& shape, double eps, bool unit_offset, std::span<const T> x,
                      std::span<const T> gamma, std::span<T> y, std::span<T> stats) {
  const char* op = "rms_norm_forward";
  RowPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "y", y.size(), shape.elements(), false);
  check_span(op, "stats", stats.size(), shape.rows, true);
  const RowPlan plan(shape);
  const RepeatedGains<T> gains(shape, gamma, {});
  const RmsNormWork<T> work{
      shape.width,  plan.period, eps,          gain_offset(unit_offset, gamma),  x.data(), nullptr,
      gains.view(), y.data(),    stats.data(), streams(shape, plan, 2, y.data())};
  const auto worker = forward_worker<T>();
  parallel_for(shape.rows, plan.task_rows,
               [&](std::int64_t begin, std::int64_t end) { worker(work, begin, end); });
}

template <class T>
void add_rms_norm_forward(const RowShape& shape, double eps, bool unit_offset,
                          std::span<const T> left, std::span<const T> right,
                          std::span<const T> gamma, std::span<T> sum, std::span<T> y,
                          std::span<T> stats) {
  const char* op = "add_rms_norm_forward";
  RowPlan::check(op, shape);
  check_span(op, "left", left.size(), shape.elements(), false);
  check_span(op, "right", right.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "sum", sum.size(), shape.elements(), false);
  check_span(op, "y", y.size(), shape.elements(), false);
  check_span(op, "stats", stats.size(), shape.rows, true);
  const RowPlan plan(shape);
  const RepeatedGains<T> gains(shape, gamma, {});
  const RmsNormWork<T> work{shape.width,  plan.period,
                            eps,          gain_offset(unit_offset, gamma),
                            sum.data(),   nullptr,
                            gains.view(), y.data(),
                            stats.data(), streams(shape, plan, 4, y.data()),
                            left.data(),  right.data(),
                            sum.data(),   nullptr};
  const auto worker = forward_worker<T>();
  parallel_for(shape.rows, plan.task_rows,
               [&](std::int64_t begin, std::int64_t end) { worker(work, begin, end); });
}

std::int64_t rms_norm_workspace(const RowShape& shape) { return RowPlan(shape).partials(1); }

template <class T>
void rms_norm_backward(const RowShape& shape, bool unit_offset, std::span<const T> x,
                       std::span<const T> dy, std::span<const T> gamma, std::span<const T> stats,
                       std::span<T> dx, std::span<T> dgamma, std::span<T> workspace,
                       std::span<const T> residual) {
  const char* op = "rms_norm_backward";
  RowPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "dy", dy.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "stats", stats.size(), shape.rows, false);
  check_span(op, "dx", dx.size(), shape.elements(), true);
  check_span(op, "dgamma", dgamma.size(), shape.affine, true);
  check_span(op, "workspace", workspace.size(), rms_norm_workspace(shape), false);
  check_span(op, "residual", residual.size(), shape.elements(), true);
  if (dx.empty() && dgamma.empty()) return;
  const RowPlan plan(shape);
  const RepeatedGains<T> gains(shape, gamma, {});
  const RmsNormWork<T> work{shape.width,
                            plan.period,
                            0,
                            gain_offset(unit_offset, gamma),
                            x.data(),
                            dy.data(),
                            gains.view(),
                            dx.data(),
                            const_cast<T*>(stats.data()),
                            streams(shape, plan, 3, dx.data()),
                            nullptr,
                            nullptr,
                            nullptr,
                            residual.data()};
  const auto worker = backward_worker<T>();
  detail::for_row_blocks(plan, shape.rows, dgamma.empty() ? nullptr : workspace.data(), plan.period,
                         [&](std::int64_t, std::int64_t begin, std::int64_t end, T* partial) {
                           worker(work, begin, end, partial);
                         });
  if (!dgamma.empty()) detail::merge_partials(shape, workspace.data(), 1, 0, dgamma);
}

template void rms_norm_forward(const RowShape&, double, bool, std::span<const float>,
                               std::span<const float>, std::span<float>, std::span<float>);
template void rms_norm_forward(const RowShape&, double, bool, std::span<const double>,
                               std::span<const double>, std::span<double>, std::span<double>);
template void add_rms_norm_forward(const RowShape&, double, bool, std::span<const float>,
                                   std::span<const float>, std::span<const float>, std::span<float>,
                                   std::span<float>, std::span<float>);
template void add_rms_norm_forward(const RowShape&, double, bool, std::span<const double>,
                                   std::span<const double>, std::span<const double>,
                                   std::span<double>, std::span<double>, std::span<double>);
template void rms_norm_backward(const RowShape&, bool, std::span<const float>,
                                std::span<const float>, std::span<const float>,
                                std::span<const float>, std::span<float>, std::span<float>,
                                std::span<float>, std::span<const float>);
template void rms_norm_backward(const RowShape&, bool, std::span<const double>,
                                std::span<const double>, std::span<const double>,
                                std::span<const double>, std::span<double>, std::span<double>,
                                std::span<double>, std::span<const double>);

}  // namespace steady
#endif
