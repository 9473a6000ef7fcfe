#include <bit>
#include <cmath>
#include <steadygrad/core/kernels/finite.hpp>
#include <steadygrad/core/parallel.hpp>
#include <type_traits>

// Under -ffast-math the compiler may assume that no value is NaN or infinite: these checks, and all
// that stands on them (anomaly mode, running statistics, clipping), would be removed in silence.
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "steadygrad needs exact floating point: build it without -ffast-math and -ffinite-math-only"
#endif

namespace steady::kernels {

template <class T>
NonFinite count_non_finite(std::span<const T> x) {
  NonFinite found;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isfinite(x[i])) continue;
    ++(std::isnan(x[i]) ? found.nan : found.inf);
    if (found.first < 0) found.first = static_cast<std::int64_t>(i);
  }
  return found;
}

template <class T>
bool all_finite(std::span<const T> x) {
  // x - x is 0 for finite x and NaN otherwise; in bits, an exponent of all ones.
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  constexpr Bits Exponent =
      sizeof(T) == 4 ? Bits{0x7F800000U} : static_cast<Bits>(0x7FF0000000000000ULL);
  const double bad = parallel_sum(
      static_cast<std::int64_t>(x.size()), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
        Bits any = 0;
        for (std::int64_t i = begin; i < end; ++i) {
          const Bits bits = std::bit_cast<Bits>(x[static_cast<std::size_t>(i)]) & Exponent;
          any |= static_cast<Bits>(bits == Exponent);
        }
        return static_cast<double>(any);
      });
  return bad == 0.0;
}

template NonFinite count_non_finite(std::span<const float>);
template NonFinite count_non_finite(std::span<const double>);
template bool all_finite(std::span<const float>);
template bool all_finite(std::span<const double>);

}  // namespace steady::kernels
