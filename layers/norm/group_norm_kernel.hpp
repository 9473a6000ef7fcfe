#pragma once

#include <cstdint>
#include <span>
#include <steadygrad/layers/norm/column_stats.hpp>

// Group normalization, features last [Wu & He 2018]; T is float or double.
//   y = (x - mean) * rstd * gamma + beta,   rstd = 1 / sqrt(var + eps),   var biased, eps inside
// mean and var are of one group of one sample: channels / groups neighbouring channels at all
// positions. groups = channels is instance normalization, groups = 1 layer normalization of whole
// samples. x, dy, y, dx, ddx, ddy, dx2: [samples, positions, channels]. gamma, beta and their
// gradients: [channels]. stats: [samples, groups, 3], a group's (mean, mean_lo, rstd): the mean is
// mean + mean_lo. An empty span stands for "absent": gamma 1, beta 0, an output nobody needs.
// Outputs are assigned, never added to, and overlap no other argument. Sizes that do not match
// throw ShapeError first. Bits do not depend on the number of threads, nor a sample's bits on the
// other samples.

namespace steady {

struct GroupShape {
  std::int64_t samples = 0;
  std::int64_t positions = 1;
  std::int64_t channels = 1;
  std::int64_t groups = 1;  ///< divides channels

  [[nodiscard]] std::int64_t elements() const { return samples * positions * channels; }
  [[nodiscard]] std::int64_t group_channels() const { return channels / groups; }
  /// Elements that share a statistic.
  [[nodiscard]] std::int64_t group_elements() const { return positions * group_channels(); }
  /// One sample: [positions, channels].
  [[nodiscard]] ColumnShape slab() const { return {positions, channels}; }
};

/// Writes y and, unless empty, stats and moments ([samples, groups]: count, mean, M2).
/// No samples and no positions are legal everywhere; without positions stats are NaN.
template <class T>
void group_norm_forward(const GroupShape& shape, double eps, std::span<const T> x,
                        std::span<const T> gamma, std::span<const T> beta, std::span<T> y,
                        std::span<T> stats, std::span<Moments> moments = {});

/// Doubles that group_norm_backward and group_norm_double_backward need as workspace.
[[nodiscard]] std::int64_t group_norm_workspace(const GroupShape& shape);

/// First derivative. dx, dgamma, dbeta may each be empty.
template <class T>
void group_norm_backward(const GroupShape& shape, std::span<const T> x, std::span<const T> dy,
                         std::span<const T> gamma, std::span<const T> stats, std::span<T> dx,
                         std::span<T> dgamma, std::span<T> dbeta, std::span<double> workspace);

/// Derivative of group_norm_backward. ddx, ddgamma, ddbeta are the cotangents of its outputs dx,
/// dgamma, dbeta (empty: zero); ddy, dx2, dgamma2 receive the gradients of its inputs dy, x, gamma
/// (each may be empty).
template <class T>
void group_norm_double_backward(const GroupShape& shape, std::span<const T> x,
                                std::span<const T> dy, std::span<const T> gamma,
                                std::span<const T> stats, std::span<const T> ddx,
                                std::span<const T> ddgamma, std::span<const T> ddbeta,
                                std::span<T> ddy, std::span<T> dx2, std::span<T> dgamma2,
                                std::span<double> workspace);

namespace detail {

/// The cut of a GroupShape into tasks of whole samples, a function of the shape alone. `fold`
/// positions are read as one line of `period` = fold * channels columns, as in ColumnPlan; fold
/// divides the positions.
struct GroupPlan {
  explicit GroupPlan(const GroupShape& shape);
  /// Throws ShapeError unless `shape` is one; op names the caller.
  static void check(const char* op, const GroupShape& shape);

  std::int64_t task_samples = 1;
  std::int64_t tasks = 0;
  std::int64_t fold = 1;
  std::int64_t period = 1;
  std::int64_t lines = 0;
};

/// out[c] = sum over tasks of partials[task][kind][c]; partials: [tasks, kinds, channels].
template <class T>
void merge_group_partials(const GroupShape& shape, std::span<const double> partials,
                          std::int64_t kinds, std::int64_t kind, std::span<T> out);

}  // namespace detail
}  // namespace steady
