#pragma once

#include <cstdint>
#include <span>
#include <steadygrad/layers/norm/column_plan.hpp>
#include <steadygrad/layers/norm/column_rows_kernel.hpp>

namespace steady {

/// Count, mean and sum of squared deviations of one channel: what statistics of parts are merged
/// from, in one process or several.
struct Moments {
  double n = 0;
  double mean = 0;
  double m2 = 0;

  /// Biased, divides by n: what normalizes. NaN when n = 0.
  [[nodiscard]] double variance() const { return m2 / n; }
  /// Unbiased, divides by n - 1: what running statistics keep. NaN when n < 2.
  [[nodiscard]] double unbiased_variance() const;
};

/// Statistics of the union of two disjoint parts [Chan, Golub & LeVeque 1983]; n = 0 is legal.
/// Merge parts in a fixed order (chunk, rank): floating-point addition is not associative.
[[nodiscard]] Moments merge(const Moments& first, const Moments& second);

/// total[c] = merge(total[c], next[c]) for every channel.
void merge_moments(std::span<const Moments> next, std::span<Moments> total);

/// Elements of double that the column kernels need as workspace.
[[nodiscard]] std::int64_t column_workspace(const ColumnShape& shape);

/// Moments of every column of x: [rows, channels]. moments: [channels].
/// Runs over fixed chunks of rows, merged in chunk order.
template <class T>
void column_moments(const ColumnShape& shape, std::span<const T> x, std::span<Moments> moments,
                    std::span<double> workspace);

/// Where a ReLU behind y = (x - mean) * scale + shift of every column lets a gradient through: not
/// where y <= 0. scale, shift: [channels], both empty without a ReLU.
template <class T>
struct ColumnGate {
  std::span<const T> scale, shift;
};

/// s1 = sum of dy and s2 = sum of dy * (x - mean) of every column, mean = stats line 0 + line 1.
/// Behind the gate, whose mean is stats line 0, dy counts as 0.
/// x, dy: [rows, channels]. stats: [3, channels]. s1, s2: [channels].
template <class T>
void column_sums(const ColumnShape& shape, std::span<const T> x, const ColumnRows<T>& dy,
                 std::span<const T> stats, std::span<double> s1, std::span<double> s2,
                 std::span<double> workspace, const ColumnGate<T>& gate = {});

}  // namespace steady
