#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace steady::kernels {

/// Bins of the histogram of |x|: bin i counts 2^(i - 64) <= |x| < 2^(i - 63). The first bin also
/// takes what is smaller and not zero, the last one what is larger and finite.
inline constexpr int MagnitudeBins = 96;
inline constexpr int LowestMagnitude = -64;

/// Counting into bins costs more than all the rest: in a buffer of more than CountedWhole elements
/// the histogram is of about a quarter of the blocks of StatsBlock elements, spread without a
/// period (the fractional part of b times the golden ratio), so that no extent of a tensor falls in
/// with them.
inline constexpr std::int64_t CountedWhole = 1 << 16;
inline constexpr std::int64_t StatsBlock = 64;
[[nodiscard]] constexpr bool counts_block(std::int64_t b) {
  return static_cast<std::uint64_t>(b) * 0x9E3779B97F4A7C15U >> 62 == 0;
}

/// Counts and moments of the elements of a buffer. Moments and maximum are of the finite elements.
struct StatsSums {
  std::int64_t count = 0;       ///< all elements
  std::int64_t zeros = 0;       ///< of either sign
  std::int64_t non_finite = 0;  ///< NaN and infinities
  double mean = 0;
  double m2 = 0;  ///< sum of (x - mean)^2
  double max_abs = 0;
  std::array<std::int64_t, MagnitudeBins> histogram{};  ///< of the counted ones, not zero, finite
};

/// All of it in one pass over x, in double. Fixed chunks, merged in order [Chan, Golub & LeVeque
/// 1983]: the same bits for any number of threads. T: float or double.
template <class T>
[[nodiscard]] StatsSums tensor_stats(std::span<const T> x);

/// Inner products <a, b>, <a, a> and <b, b>, in double, in one pass; spans of one length.
struct InnerProducts {
  double ab = 0;
  double aa = 0;
  double bb = 0;
};
template <class T>
[[nodiscard]] InnerProducts inner_products(std::span<const T> a, std::span<const T> b);

/// Sums of x, x^2, x^3 and x^4, in double, in one pass.
template <class T>
[[nodiscard]] std::array<double, 4> power_sums(std::span<const T> x);

/// y[i] = a[i] - b[i]; spans of one length, y may be a or b.
template <class T>
void difference(std::span<const T> a, std::span<const T> b, std::span<T> y);

}  // namespace steady::kernels
