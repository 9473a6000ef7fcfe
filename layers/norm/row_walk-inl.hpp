// How the row kernels (layer, RMS) walk a row; read once per SIMD target, like simd-inl.hpp.

#if defined(STEADY_LAYERS_NORM_ROW_WALK_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef STEADY_LAYERS_NORM_ROW_WALK_INL_HPP
#undef STEADY_LAYERS_NORM_ROW_WALK_INL_HPP
#else
#define STEADY_LAYERS_NORM_ROW_WALK_INL_HPP
#endif

#include <algorithm>
#include <cstdint>
#include <steadygrad/core/kernels/rows-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {

/// Elements of a row that are summed in T, 32 terms per lane and partial sum; sums of such sums are
/// double. So the error of a statistic does not grow with the width, and one large element does not
/// swallow many small ones.
template <class T>
HWY_INLINE std::int64_t sum_block() {
  return 32 * 4 * lanes<T>();
}

/// Calls body(i, at, n) for the pieces [i, i + n) of a row; `at` is i modulo the period of the
/// gains. The cut depends on width and period alone, so that every row is summed in the same order
/// wherever in a task it lies.
template <class T, class Body>
HWY_INLINE void for_pieces(std::int64_t width, std::int64_t period, Body&& body) {
  const std::int64_t block = sum_block<T>();
  for (std::int64_t base = 0; base < width; base += period) {
    const std::int64_t length = std::min(period, width - base);
    for (std::int64_t at = 0; at < length; at += block) {
      body(base + at, at, std::min(block, length - at));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#endif
