#pragma once

#include <cstdint>
#include <span>
#include <steadygrad/core/kernels/broadcast.hpp>

namespace steady::kernels {

/// All functions: T is float, double, int32_t or int64_t, tensors are row-major, in and out do not
/// overlap, and spans of the wrong size throw Error.

/// y[i_axes[0], i_axes[1], ...] = x[i_0, i_1, ...]: axis k of y is axis axes[k] of x.
/// Throws ShapeError when `axes` is no permutation of 0 .. rank-1.
template <class T>
void permute(std::span<const T> x, Extents extents, std::span<const int> axes, std::span<T> y);

/// y[r, y_first + j] = x[r, x_first + j] for r < rows and j < width, with rows of x_width and
/// y_width elements. Concatenation along an axis is one call per part (rows: the product of the
/// outer extents, width: that of the part's inner ones); its backward and a slice of step 1 are the
/// same call the other way.
template <class T>
void copy_columns(std::span<const T> x, std::int64_t x_width, std::int64_t x_first, std::span<T> y,
                  std::int64_t y_width, std::int64_t y_first, std::int64_t rows,
                  std::int64_t width);

/// Elements start, start + step, ... (count of them, step >= 1) of the middle axis.
struct Slice {
  std::int64_t outer = 1;
  std::int64_t extent = 0;
  std::int64_t inner = 1;
  std::int64_t start = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;
};

/// y[o, k, i] = x[o, start + k step, i]; x: [outer, extent, inner], y: [outer, count, inner].
template <class T>
void slice(std::span<const T> x, const Slice& s, std::span<T> y);

/// dx[o, start + k step, i] = dy[o, k, i], every other element 0.
template <class T>
void slice_backward(std::span<const T> dy, const Slice& s, std::span<T> dx);

/// y[m, :] = table[index[m], :]; table: [table_rows, width], y: [index.size(), width].
/// Throws Error naming position, value and table_rows for an index outside 0 .. table_rows-1,
/// before anything is written.
template <class T>
void gather_rows(std::span<const T> table, std::int64_t table_rows, std::int64_t width,
                 std::span<const std::int64_t> index, std::span<T> y);

/// table[index[m], :] += dy[m, :], repeated indices in the order of m. Throws like gather_rows.
template <class T>
void scatter_add_rows(std::span<const T> dy, std::int64_t table_rows, std::int64_t width,
                      std::span<const std::int64_t> index, std::span<T> table);

}  // namespace steady::kernels
