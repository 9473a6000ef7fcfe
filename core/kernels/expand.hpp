#pragma once

#include <span>
#include <steadygrad/core/kernels/broadcast.hpp>

namespace steady::kernels {

/// y = x repeated from extents `from` to extents `to` as NumPy broadcasts it. T: float or double.
/// Throws ShapeError when it does not broadcast, Error for spans of the wrong size.
template <class T>
void expand(std::span<const T> x, Extents from, std::span<T> y, Extents to);

/// w = the share of the gradient of max(a, b) that a gets, under a plan of two operands: 1 where
/// a > b, 0 where a < b and 1/2 at a tie. A NaN takes it all; two NaN tie.
template <class T>
void larger_share(const Broadcast& plan, std::span<const T> a, std::span<const T> b,
                  std::span<T> w);

}  // namespace steady::kernels
