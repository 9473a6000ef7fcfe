#pragma once

#include <cstdint>
#include <span>
#include <steadygrad/layers/norm/row_stats.hpp>

// Rows multiplied by one number each that depends on the squares of their first elements; T is
// float or double. The norms that do no more than that:
//   y = x * s * gamma,   q = sum of x^2 over the first `counted` elements of the row
//   mean:  s = 1 / sqrt(q / counted + eps)        partial and simple RMSNorm
//   clamp: s = 1 / max(sqrt(q), eps)              L2 normalization, ScaleNorm
// x, dy, y, dx, ddx, ddy, dx2: [rows, width]. gamma and its gradients: [affine]; one gain for all
// is affine = 1. stats: [rows, 2]. An empty span stands for "absent": gain 1, an output nobody
// needs. Outputs are assigned, never added to, and overlap no other argument. Sizes that do not
// match throw ShapeError first. Bits do not depend on the number of threads, nor a row's bits on
// the other rows. Squares beyond the range of float are summed in double instead.

namespace steady {

/// How the scale of a row is made.
struct RowScaleRule {
  std::int64_t counted = 1;  ///< 1 .. width
  bool mean = true;          ///< false: clamp
  double eps = 0;
};

/// Writes y and, unless empty, stats: s, and the factor l of ds/dx = -l s^3 x (1 / counted for
/// mean, 1 for clamp, 0 where eps is the divisor). rows = 0 is legal everywhere.
template <class T>
void row_scale_forward(const RowShape& shape, const RowScaleRule& rule, std::span<const T> x,
                       std::span<const T> gamma, std::span<T> y, std::span<T> stats);

/// Elements of T that row_scale_backward and row_scale_double_backward need as workspace.
[[nodiscard]] std::int64_t row_scale_workspace(const RowShape& shape);

/// First derivative. dx and dgamma may each be empty.
template <class T>
void row_scale_backward(const RowShape& shape, std::int64_t counted, std::span<const T> x,
                        std::span<const T> dy, std::span<const T> gamma, std::span<const T> stats,
                        std::span<T> dx, std::span<T> dgamma, std::span<T> workspace);

/// Derivative of row_scale_backward. ddx and ddgamma are the cotangents of its outputs dx and
/// dgamma (empty: zero); ddy, dx2, dgamma2 receive the gradients of its inputs dy, x, gamma (each
/// may be empty).
template <class T>
void row_scale_double_backward(const RowShape& shape, std::int64_t counted, std::span<const T> x,
                               std::span<const T> dy, std::span<const T> gamma,
                               std::span<const T> stats, std::span<const T> ddx,
                               std::span<const T> ddgamma, std::span<T> ddy, std::span<T> dx2,
                               std::span<T> dgamma2, std::span<T> workspace);

}  // namespace steady
