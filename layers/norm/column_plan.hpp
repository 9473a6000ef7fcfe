#pragma once

#include <algorithm>
#include <cstdint>
#include <steadygrad/core/parallel.hpp>

namespace steady {

/// A buffer [rows, channels], row-major: images [N, H, W, C] have rows = N*H*W.
struct ColumnShape {
  std::int64_t rows = 0;
  std::int64_t channels = 1;

  [[nodiscard]] std::int64_t elements() const { return rows * channels; }
};

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
  static constexpr std::int64_t SumLines = 64;  ///< added up before they join a sum in double
  static constexpr std::int64_t Kinds = 5;      ///< most sums a reduction keeps per column

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
