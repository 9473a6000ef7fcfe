#pragma once

#include <cstdint>
#include <span>

namespace steady {

/// [rows, channels], and a window of channels c - before .. c + after around each channel c.
struct WindowShape {
  std::int64_t rows = 0;
  std::int64_t channels = 1;
  std::int64_t before = 0;
  std::int64_t after = 0;
};

/// y[row][c] = sum of x[row][j] over the window of c, cut at both ends of the row; T is float or
/// double. Added in the order of the channels, every window by itself: no difference of running
/// sums, which would lose the digits of small values beside large ones. Sizes that do not match
/// throw ShapeError. Bits do not depend on the number of threads.
template <class T>
void window_sum(const WindowShape& shape, std::span<const T> x, std::span<T> y);

}  // namespace steady
