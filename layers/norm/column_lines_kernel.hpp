#pragma once

#include <cstdint>

// The inner passes of the column norms over `lines` lines of `columns` elements that begin `stride`
// elements apart, on the calling thread; T is float or double. Coefficients and sums: [columns].
// column_stats.hpp and column_apply_kernel.hpp cut larger buffers into such pieces.

namespace steady::detail {

/// mean and m2 of every column. lines = 0 writes nothing.
template <class T>
void moments_lines(const T* x, std::int64_t stride, std::int64_t lines, std::int64_t columns,
                   double* mean, double* m2);

/// Where a ReLU behind y = (x - mean) * scale + shift lets a gradient through: not where y <= 0.
/// Null: no ReLU, everywhere.
template <class T>
struct GateLines {
  const T *scale = nullptr, *shift = nullptr;
};

/// Adds the sums of dy to s1 and of dy * (x - pivot) to s2; behind a gate, whose mean is the pivot,
/// dy counts as 0.
template <class T>
void sums_lines(const T* x, const T* dy, const T* pivots, const GateLines<T>& gate,
                std::int64_t stride, std::int64_t lines, std::int64_t columns, double* s1,
                double* s2);

/// Below, `ahead` and `ahead_dy`, unless null, are what is read next in the same shape: it is
/// fetched into the caches on the way. `stream`: write past the caches, see stream.hpp.
struct LineShape {
  std::int64_t stride, lines, columns;
  bool stream = false;
};

/// y = (x - mean) * scale + shift; with `relu` 0 where that is below 0.
template <class T>
struct AffineLines {
  const T *x, *ahead;
  T* y;
  const T *mean, *scale, *shift;
  bool relu = false;
};
template <class T>
void affine_lines(const LineShape& shape, const AffineLines<T>& work);

/// dx = a * dy + b * (x - mean) + k; behind the gate dy counts as 0.
template <class T>
struct GradientLines {
  const T *x, *dy, *ahead, *ahead_dy;
  T* dx;
  const T *mean, *a, *b, *k;
  GateLines<T> gate = {};
};
template <class T>
void gradient_lines(const LineShape& shape, const GradientLines<T>& work);

}  // namespace steady::detail
