#pragma once

#include <cstdint>
#include <span>
#include <steadygrad/layers/norm/row_stats.hpp>

// Layer normalization over rows [Ba, Kiros & Hinton 2016, eq. 4]; T is float or double.
//   y = (x - mean) * rstd * gamma + beta,   rstd = 1 / sqrt(var + eps),   var biased, eps inside
// x, dy, y, dx, ddx, ddy, dx2: [rows, width]. gamma, beta and their gradients: [affine].
// stats: [rows, 3], a row's (mean, mean_lo, rstd): the mean is mean + mean_lo, so that x - mean
// keeps its digits when the mean is large against the spread. An empty span stands for "absent":
// gamma 1, beta 0, an output nobody needs. Outputs are assigned, never added to, and overlap no
// other argument. Sizes that do not match throw ShapeError first. Bits do not depend on the number
// of threads, nor a row's bits on the other rows.
// layer_norm_forward and layer_norm_backward take an affine width that is a multiple of the width
// as well: row r has the gains that begin at r * width modulo affine.

namespace steady {

/// Writes y and, unless empty, stats. rows = 0 is legal everywhere.
template <class T>
void layer_norm_forward(const RowShape& shape, double eps, std::span<const T> x,
                        std::span<const T> gamma, std::span<const T> beta, std::span<T> y,
                        std::span<T> stats);

/// The same for x = left + right, which is written to `sum`: one pass instead of two. The bits are
/// those of an addition and a layer_norm_forward. left, right, sum: [rows, width].
template <class T>
void add_layer_norm_forward(const RowShape& shape, double eps, std::span<const T> left,
                            std::span<const T> right, std::span<const T> gamma,
                            std::span<const T> beta, std::span<T> sum, std::span<T> y,
                            std::span<T> stats);

/// Elements of T that layer_norm_backward and layer_norm_double_backward need as workspace.
[[nodiscard]] std::int64_t layer_norm_workspace(const RowShape& shape);

/// First derivative. dx, dgamma, dbeta may each be empty. `residual`, [rows, width], is a gradient
/// of x from elsewhere that is added to dx in the same pass.
template <class T>
void layer_norm_backward(const RowShape& shape, std::span<const T> x, std::span<const T> dy,
                         std::span<const T> gamma, std::span<const T> stats, std::span<T> dx,
                         std::span<T> dgamma, std::span<T> dbeta, std::span<T> workspace,
                         std::span<const T> residual = {});

/// Derivative of layer_norm_backward. ddx, ddgamma, ddbeta are the cotangents of its outputs dx,
/// dgamma, dbeta (empty: zero); ddy, dx2, dgamma2 receive the gradients of its inputs dy, x, gamma
/// (each may be empty).
template <class T>
void layer_norm_double_backward(const RowShape& shape, std::span<const T> x, std::span<const T> dy,
                                std::span<const T> gamma, std::span<const T> stats,
                                std::span<const T> ddx, std::span<const T> ddgamma,
                                std::span<const T> ddbeta, std::span<T> ddy, std::span<T> dx2,
                                std::span<T> dgamma2, std::span<T> workspace);

}  // namespace steady
