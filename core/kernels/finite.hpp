#pragma once

#include <cstdint>
#include <span>

namespace steady::kernels {

/// How many elements are not finite, and where the first one is (-1: none).
struct NonFinite {
  std::int64_t nan = 0;
  std::int64_t inf = 0;
  std::int64_t first = -1;
};

/// Counts NaN and infinities. T: float or double.
template <class T>
[[nodiscard]] NonFinite count_non_finite(std::span<const T> x);

/// True when every element is finite; one vectorised pass.
template <class T>
[[nodiscard]] bool all_finite(std::span<const T> x);

}  // namespace steady::kernels
