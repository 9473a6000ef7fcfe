// How many short rows a kernel takes at once; read once per SIMD target, like simd-inl.hpp.

#if defined(STEADY_CORE_KERNELS_ROWS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef STEADY_CORE_KERNELS_ROWS_INL_HPP
#undef STEADY_CORE_KERNELS_ROWS_INL_HPP
#else
#define STEADY_CORE_KERNELS_ROWS_INL_HPP
#endif

#include <algorithm>
#include <cstdint>
#include <steadygrad/core/kernels/simd-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {

/// Rows whose statistics are computed side by side: those of one row are a chain of sums over
/// lanes, divisions and a root, which takes longer than a short row itself.
constexpr std::int64_t MostTogether = 16;

/// As many rows of `elements` as fit a part of the first cache.
template <class T>
HWY_INLINE std::int64_t rows_together(std::int64_t elements) {
  constexpr std::int64_t Bytes = 12288;
  return std::clamp<std::int64_t>(Bytes / (elements * static_cast<std::int64_t>(sizeof(T))), 1,
                                  MostTogether);
}

}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#endif
