#pragma once

#include <span>

namespace steady::kernels {

/// y += x. T: float or double; equal sizes.
template <class T>
void accumulate(std::span<T> y, std::span<const T> x);

/// y *= factor.
template <class T>
void multiply(std::span<T> y, T factor);

}  // namespace steady::kernels
