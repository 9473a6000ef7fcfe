#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <steadygrad/core/parallel.hpp>

namespace steady {

/// A buffer [rows, channels], row-major: images [N, H, W, C] have rows = N*H*W.
struct ColumnShape {
  std::int64_t rows = 0;
  std::int64_t channels = 1;

  [[nodiscard]] std::int64_t elements() const { return rows * channels; }
};

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

/// s1 = sum of dy and s2 = sum of dy * (x - mean) of every column, mean = stats line 0 + line 1.
/// x, dy: [rows, channels]. stats: [3, channels]. s1, s2: [channels].
template <class T>
void column_sums(const ColumnShape& shape, std::span<const T> x, std::span<const T> dy,
                 std::span<const T> stats, std::span<double> s1, std::span<double> s2,
                 std::span<double> workspace);

namespace detail {

/// The cut of a ColumnShape into work, a function of the shape alone.
///
/// `fold` rows are read as one line of `period` = fold * channels columns, so that vectors stay
/// full when there are few channels; column j of a line belongs to channel j % channels. Lines are
/// cut into chunks, wide lines into blocks of columns as well. rest_rows rows do not fill a line.
struct ColumnPlan {
  explicit ColumnPlan(const ColumnShape& shape);

  /// Throws ShapeError unless `shape` is one; op names the caller.
  static void check(const char* op, const ColumnShape& shape);

  static constexpr std::int64_t ColumnBlock = 1024;
  static constexpr std::int64_t Kinds = 5;  ///< most sums a reduction keeps per column

  std::int64_t channels;
  std::int64_t fold = 1;
  std::int64_t period;
  std::int64_t lines = 0;
  std::int64_t chunk_lines = 1;
  std::int64_t chunks = 0;
  std::int64_t column_blocks;
  std::int64_t rest_rows = 0;

  /// Calls body(j, channel) for the columns column + j, j < columns, of a line.
  template <class Body>
  void for_channels(std::int64_t column, std::int64_t columns, Body&& body) const {
    std::int64_t c = column % channels;
    for (std::int64_t j = 0; j < columns; ++j) {
      body(j, c);
      if (++c == channels) c = 0;
    }
  }

  /// Calls body(chunk, first line, lines, first column, columns) for every piece, in parallel; the
  /// last chunk first when `backwards`: what was read last is read again while caches hold it.
  template <class Body>
  void for_pieces(bool backwards, Body&& body) const {
    parallel_for(chunks * column_blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t task = backwards ? chunks * column_blocks - 1 - i : i;
        const std::int64_t chunk = task / column_blocks;
        const std::int64_t line = chunk * chunk_lines;
        const std::int64_t column = task % column_blocks * ColumnBlock;
        body(chunk, line, std::min(chunk_lines, lines - line), column,
             std::min(ColumnBlock, period - column));
      }
    });
  }
};

}  // namespace detail
}  // namespace steady
