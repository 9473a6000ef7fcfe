#pragma once

#include <cstdint>
#include <span>
#include <steadygrad/layers/norm/row_stats.hpp>

// Root mean square normalization over rows [Zhang & Sennrich 2019, eq. 4]; T is float or double.
//   y = x * rstd * gain,   rstd = 1 / sqrt(mean(x^2) + eps),   eps inside the root
//   gain = gamma, or 1 + gamma with unit_offset (Gemma)
// x, dy, y, dx, ddx, ddy, dx2: [rows, width]. gamma and its gradients: [affine]. stats: [rows],
// rstd. An empty span stands for "absent": gain 1, an output nobody needs. Outputs are assigned,
// never added to, and overlap no other argument. Sizes that do not match throw ShapeError first.
// Bits do not depend on the number of threads, nor a row's bits on the other rows.

namespace steady {

/// Writes y and, unless empty, stats. rows = 0 is legal everywhere.
template <class T>
void rms_norm_forward(const RowShape& shape, double eps, bool unit_offset, std::span<const T> x,
                      std::span<const T> gamma, std::span<T> y, std::span<T> stats);

/// The same for x = left + right, which is written to `sum`: one pass instead of two. The bits are
/// those of an addition and an rms_norm_forward. left, right, sum: [rows, width].
template <class T>
void add_rms_norm_forward(const RowShape& shape, double eps, bool unit_offset,
                          std::span<const T> left, std::span<const T> right,
                          std::span<const T> gamma, std::span<T> sum, std::span<T> y,
                          std::span<T> stats);

/// Elements of T that rms_norm_backward and rms_norm_double_backward need as workspace.
[[nodiscard]] std::int64_t rms_norm_workspace(const RowShape& shape);

/// First derivative. dx and dgamma may each be empty. `residual`, [rows, width], is a gradient of x
/// from elsewhere that is added to dx in the same pass.
template <class T>
void rms_norm_backward(const RowShape& shape, bool unit_offset, std::span<const T> x,
                       std::span<const T> dy, std::span<const T> gamma, std::span<const T> stats,
                       std::span<T> dx, std::span<T> dgamma, std::span<T> workspace,
                       std::span<const T> residual = {});

/// Derivative of rms_norm_backward. ddx and ddgamma are the cotangents of its outputs dx and dgamma
/// (empty: zero); ddy, dx2, dgamma2 receive the gradients of its inputs dy, x, gamma (each may be
/// empty).
template <class T>
void rms_norm_double_backward(const RowShape& shape, bool unit_offset, std::span<const T> x,
                              std::span<const T> dy, std::span<const T> gamma,
                              std::span<const T> stats, std::span<const T> ddx,
                              std::span<const T> ddgamma, std::span<T> ddy, std::span<T> dx2,
                              std::span<T> dgamma2, std::span<T> workspace);

}  // namespace steady
