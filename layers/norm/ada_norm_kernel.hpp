#pragma once

#include <span>

// The factor of AdaNorm on rows that are normalized already; T is float or double.
//   z = c * (1 - k * y) * y
// All spans have one size (ShapeError otherwise); outputs are assigned and overlap no other
// argument.

namespace steady {

template <class T>
void ada_scale(T c, T k, std::span<const T> y, std::span<T> z);

/// dy = c * (1 - slope * y) * dz: with slope = 2 k the derivative of ada_scale, with slope = k the
/// one that takes the factor c * (1 - k * y) for a constant.
template <class T>
void ada_scale_backward(T c, T slope, std::span<const T> y, std::span<const T> dz, std::span<T> dy);

}  // namespace steady
