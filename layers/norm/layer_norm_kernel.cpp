#include <algorithm>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/layers/norm/layer_norm_kernel.hpp>
#include <steadygrad/layers/norm/row_blocks_kernel.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "layers/norm/layer_norm_kernel.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, which fixes the target they are read for.
#include <steadygrad/layers/norm/layer_norm_backward-inl.hpp>
#include <steadygrad/layers/norm/layer_norm_forward-inl.hpp>

// Derivation, one row of D elements; m(.) is the mean over the row, u = dy, w = gamma * u:
//   xhat = (x - mean) * r,  r = (var + eps)^(-1/2),  y = gamma * xhat + beta.
// From d mean = m(dx) and d r = -r^2 m(xhat dx) follows d xhat = r * P(dx) with
//   P(v) = v - m(v) - xhat * m(v * xhat),
// symmetric, hence
//   dx = r * P(w),   dgamma = sum over rows of u * xhat,   dbeta = sum over rows of u.
// Its derivative: layer_norm_double_backward.cpp.

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {

void layer_norm_forward_f32(const LayerNormForward<float>& a, std::int64_t begin,
                            std::int64_t end) {
  forward_rows(a, begin, end);
}
void layer_norm_forward_f64(const LayerNormForward<double>& a, std::int64_t begin,
                            std::int64_t end) {
  forward_rows(a, begin, end);
}
void layer_norm_backward_f32(const LayerNormBackward<float>& a, std::int64_t begin,
                             std::int64_t end, float* dgamma, float* dbeta) {
  backward_rows(a, begin, end, dgamma, dbeta);
}
void layer_norm_backward_f64(const LayerNormBackward<double>& a, std::int64_t begin,
                             std::int64_t end, double* dgamma, double* dbeta) {
  backward_rows(a, begin, end, dgamma, dbeta);
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

HWY_EXPORT(layer_norm_forward_f32);
HWY_EXPORT(layer_norm_forward_f64);
HWY_EXPORT(layer_norm_backward_f32);
HWY_EXPORT(layer_norm_backward_f64);

template <class T>
auto forward_worker() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(layer_norm_forward_f32);
  } else {
    return HWY_DYNAMIC_DISPATCH(layer_norm_forward_f64);
  }
}

template <class T>
auto backward_worker() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(layer_norm_backward_f32);
  } else {
    return HWY_DYNAMIC_DISPATCH(layer_norm_backward_f64);
  }
}

void check(const char* op, const RowShape& shape) {
  if (shape.width >= 1 && shape.affine > shape.width && shape.affine % shape.width == 0) return;
  RowPlan::check(op, shape);
}

/// Rows after which the gains repeat.
std::int64_t gain_cycle(const RowShape& shape) {
  return std::max<std::int64_t>(shape.affine / shape.width, 1);
}

}  // namespace

template <class T>
void layer_norm_forward(const RowShape& shape, double eps, std::span<const T> x,
                        std::span<const T> gamma, std::span<const T> beta, std::span<T> y,
                        std::span<T> stats) {
  const char* op = "layer_norm_forward";
  check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "beta", beta.size(), shape.affine, true);
  check_span(op, "y", y.size(), shape.elements(), false);
  check_span(op, "stats", stats.size(), 3 * shape.rows, true);
  const RowPlan plan(shape);
  const RepeatedGains<T> gains(shape, gamma, beta);
  const LayerNormForward<T> work{shape.width, plan.period,  gain_cycle(shape),
                                 eps,         x.data(),     gains.view(),
                                 y.data(),    stats.data(), streams(shape, plan, 2, y.data())};
  const auto worker = forward_worker<T>();
  parallel_for(shape.rows, plan.task_rows,
               [&](std::int64_t begin, std::int64_t end) { worker(work, begin, end); });
}

template <class T>
void add_layer_norm_forward(const RowShape& shape, double eps, std::span<const T> left,
                            std::span<const T> right, std::span<const T> gamma,
                            std::span<const T> beta, std::span<T> sum, std::span<T> y,
                            std::span<T> stats) {
  const char* op = "add_layer_norm_forward";
  RowPlan::check(op, shape);
  check_span(op, "left", left.size(), shape.elements(), false);
  check_span(op, "right", right.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "beta", beta.size(), shape.affine, true);
  check_span(op, "sum", sum.size(), shape.elements(), false);
  check_span(op, "y", y.size(), shape.elements(), false);
  check_span(op, "stats", stats.size(), 3 * shape.rows, true);
  const RowPlan plan(shape);
  const RepeatedGains<T> gains(shape, gamma, beta);
  const LayerNormForward<T> work{shape.width, plan.period,  1,
                                 eps,         sum.data(),   gains.view(),
                                 y.data(),    stats.data(), streams(shape, plan, 4, y.data()),
                                 left.data(), right.data(), sum.data()};
  const auto worker = forward_worker<T>();
  parallel_for(shape.rows, plan.task_rows,
               [&](std::int64_t begin, std::int64_t end) { worker(work, begin, end); });
}

std::int64_t layer_norm_workspace(const RowShape& shape) {
  const RowPlan plan(shape);
  return plan.blocks * 2 * std::max(plan.period, shape.affine);
}

template <class T>
void layer_norm_backward(const RowShape& shape, std::span<const T> x, std::span<const T> dy,
                         std::span<const T> gamma, std::span<const T> stats, std::span<T> dx,
                         std::span<T> dgamma, std::span<T> dbeta, std::span<T> workspace,
                         std::span<const T> residual) {
  const char* op = "layer_norm_backward";
  check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "dy", dy.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "stats", stats.size(), 3 * shape.rows, false);
  check_span(op, "dx", dx.size(), shape.elements(), true);
  check_span(op, "dgamma", dgamma.size(), shape.affine, true);
  check_span(op, "dbeta", dbeta.size(), shape.affine, true);
  check_span(op, "workspace", workspace.size(), layer_norm_workspace(shape), false);
  check_span(op, "residual", residual.size(), shape.elements(), true);
  const bool params = !dgamma.empty() || !dbeta.empty();
  if (dx.empty() && !params) return;
  const RowPlan plan(shape);
  const RepeatedGains<T> gains(shape, gamma, {});
  const std::int64_t columns = std::max(plan.period, shape.affine);
  const LayerNormBackward<T> work{shape.width,    plan.period, gain_cycle(shape),
                                  x.data(),       dy.data(),   stats.data(),
                                  gains.view(),   dx.data(),   streams(shape, plan, 3, dx.data()),
                                  residual.data()};
  const auto worker = backward_worker<T>();
  detail::for_row_blocks(plan, shape.rows, params ? workspace.data() : nullptr, 2 * columns,
                         [&](std::int64_t, std::int64_t begin, std::int64_t end, T* partial) {
                           worker(work, begin, end, partial, params ? partial + columns : nullptr);
                         });
  if (!dgamma.empty()) detail::merge_partials(shape, workspace.data(), 2, 0, dgamma);
  if (!dbeta.empty()) detail::merge_partials(shape, workspace.data(), 2, 1, dbeta);
}

template void layer_norm_forward(const RowShape&, double, std::span<const float>,
                                 std::span<const float>, std::span<const float>, std::span<float>,
                                 std::span<float>);
template void layer_norm_forward(const RowShape&, double, std::span<const double>,
                                 std::span<const double>, std::span<const double>,
                                 std::span<double>, std::span<double>);
template void add_layer_norm_forward(const RowShape&, double, std::span<const float>,
                                     std::span<const float>, std::span<const float>,
                                     std::span<const float>, std::span<float>, std::span<float>,
                                     std::span<float>);
template void add_layer_norm_forward(const RowShape&, double, std::span<const double>,
                                     std::span<const double>, std::span<const double>,
                                     std::span<const double>, std::span<double>, std::span<double>,
                                     std::span<double>);
template void layer_norm_backward(const RowShape&, std::span<const float>, std::span<const float>,
                                  std::span<const float>, std::span<const float>, std::span<float>,
                                  std::span<float>, std::span<float>, std::span<float>,
                                  std::span<const float>);
template void layer_norm_backward(const RowShape&, std::span<const double>, std::span<const double>,
                                  std::span<const double>, std::span<const double>,
                                  std::span<double>, std::span<double>, std::span<double>,
                                  std::span<double>, std::span<const double>);

}  // namespace steady
#endif
