// Stores past the caches, chosen by the rule of stream.hpp, and loads ahead of their use; read once
// per SIMD target, like simd-inl.hpp.

#if defined(STEADY_CORE_KERNELS_STREAM_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef STEADY_CORE_KERNELS_STREAM_INL_HPP
#undef STEADY_CORE_KERNELS_STREAM_INL_HPP
#else
#define STEADY_CORE_KERNELS_STREAM_INL_HPP
#endif

#include <hwy/cache_control.h>

#include <steadygrad/core/kernels/simd-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {

/// store(); with kStream whole vectors go past the caches.
template <bool kStream, class T>
HWY_INLINE void put(Vec<T> v, T* p, Whole part) {
  if constexpr (kStream) {
    hn::Stream(v, Tag<T>(), p);
  } else {
    store(v, p, part);
  }
}
template <bool kStream, class T>
HWY_INLINE void put(Vec<T> v, T* p, Part part) {
  store(v, p, part);
}

/// How many elements ahead of its use a row is fetched where the arrays come from memory. A loop
/// over rows loads, computes and stores too much per line for the processor to look far enough
/// ahead by itself: its window of instructions holds a few dozen lines of a copy, but only a few
/// of such a loop.
constexpr std::int64_t Ahead = 1024;

/// At the end of a task that streamed: other threads see what it wrote.
template <bool kStream>
HWY_INLINE void end_stream() {
  if (kStream) hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#endif
