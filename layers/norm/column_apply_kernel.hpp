#pragma once

#include <span>
#include <steadygrad/layers/norm/column_plan.hpp>
#include <steadygrad/layers/norm/column_stats.hpp>

// The passes of the column norms that write a result: affine in x, with coefficients per column.
// T is float or double. All coefficients: [channels]. Sizes that do not match throw ShapeError.
// Bits do not depend on the number of threads.

namespace steady {

/// y = (x - mean) * scale + shift, with `relu` 0 where that is below 0. x, y: [rows, channels].
template <class T>
struct ColumnAffine {
  std::span<const T> mean, scale, shift;
};
template <class T>
void column_affine(const ColumnShape& shape, const ColumnAffine<T>& c, std::span<const T> x,
                   std::span<T> y, bool relu = false);

/// dx = a * dy + b * (x - mean) + k; behind the gate dy counts as 0. x, dy, dx: [rows, channels].
template <class T>
struct ColumnGradient {
  std::span<const T> mean, a, b, k;
};
template <class T>
void column_gradient(const ColumnShape& shape, const ColumnGradient<T>& c, std::span<const T> x,
                     const ColumnRows<T>& dy, std::span<T> dx, const ColumnGate<T>& gate = {});

}  // namespace steady
