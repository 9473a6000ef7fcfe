// The one wrapper over Highway. A kernel file compiles itself once per SIMD target:
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "its/path/from/the/root.cpp"
//   #include <hwy/foreach_target.h>
//   #include <steadygrad/core/kernels/simd-inl.hpp>
// and keeps its workers in steady::HWY_NAMESPACE. Only operations of Highway 1.0.3.
// Workers that take lambdas are HWY_FLATTEN: then accumulators captured by reference stay in
// registers.

// Guard per target: this file is read again for each.
#if defined(STEADY_CORE_KERNELS_SIMD_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef STEADY_CORE_KERNELS_SIMD_INL_HPP
#undef STEADY_CORE_KERNELS_SIMD_INL_HPP
#else
#define STEADY_CORE_KERNELS_SIMD_INL_HPP
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vec = hn::Vec<Tag<T>>;

/// Which lanes of a vector an access touches: all of them, or the first `count` of the last one.
struct Whole {};
struct Part {
  std::int64_t count;
};

template <class T>
HWY_INLINE std::int64_t lanes() {
  return static_cast<std::int64_t>(hn::Lanes(Tag<T>()));
}

template <class T>
HWY_INLINE Vec<T> fill(T value) {
  return hn::Set(Tag<T>(), value);
}

template <class T>
HWY_INLINE Vec<T> load(const T* p, Whole) {
  return hn::LoadU(Tag<T>(), p);
}
/// Absent lanes are zero; memory past them is not read.
template <class T>
HWY_INLINE Vec<T> load(const T* p, Part part) {
  const Tag<T> d;
#if HWY_TARGET <= HWY_AVX2
  return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(part.count)), d, p);
#else
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(T)] = {};
  std::copy_n(p, part.count, buffer);
  return hn::Load(d, buffer);
#endif
}

template <class T>
HWY_INLINE void store(Vec<T> v, T* p, Whole) {
  hn::StoreU(v, Tag<T>(), p);
}
template <class T>
HWY_INLINE void store(Vec<T> v, T* p, Part part) {
  const Tag<T> d;
#if HWY_TARGET <= HWY_AVX2
  hn::BlendedStore(v, hn::FirstN(d, static_cast<std::size_t>(part.count)), d, p);
#else
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(T)];
  hn::Store(v, d, buffer);
  std::copy_n(buffer, part.count, p);
#endif
}

/// Zero in the lanes that are not part of the data: before a value that is not zero there is
/// summed.
template <class T, class V = Vec<T>>
HWY_INLINE V keep(V v, Whole) {
  return v;
}
template <class T, class V = Vec<T>>
HWY_INLINE V keep(V v, Part part) {
  return hn::IfThenElseZero(hn::FirstN(Tag<T>(), static_cast<std::size_t>(part.count)), v);
}

/// a * b + c in one rounding where the target has it.
template <class V>
HWY_INLINE V fma(V a, V b, V c) {
  return hn::MulAdd(a, b, c);
}
/// c - a * b.
template <class V>
HWY_INLINE V fnma(V a, V b, V c) {
  return hn::NegMulAdd(a, b, c);
}
/// u where a ReLU of y passes a gradient: not where y <= 0.
template <class V>
HWY_INLINE V gated(V u, V y) {
  const V none = hn::Zero(hn::DFromV<V>());
  return hn::IfThenElse(hn::Le(y, none), none, u);
}

/// Four vectors of partial sums: independent chains, so that an addition need not wait for the
/// last.
template <class T>
struct Sum {
  Vec<T> part[4];

  // Spelled out: an implicit constructor would not be compiled for the target.
  HWY_INLINE Sum() : part{fill(T(0)), fill(T(0)), fill(T(0)), fill(T(0))} {}
  HWY_INLINE void add(int k, Vec<T> v) { part[k] = hn::Add(part[k], v); }
  HWY_INLINE void add_product(int k, Vec<T> a, Vec<T> b) { part[k] = fma(a, b, part[k]); }
  [[nodiscard]] HWY_INLINE T total() const {
    const Vec<T> v = hn::Add(hn::Add(part[0], part[1]), hn::Add(part[2], part[3]));
    return hn::GetLane(hn::SumOfLanes(Tag<T>(), v));
  }
};

/// Calls body(i, Whole{}, k) for the whole vectors of [0, n), four at a time with k = 0, 1, 2, 3,
/// and body(i, Part{rest}, 0) for what remains. Which element meets which k depends on n alone.
template <class T, class Body>
HWY_INLINE void for_vectors(std::int64_t n, Body&& body) {
  const std::int64_t step = lanes<T>();
  std::int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    body(i, Whole{}, 0);
    body(i + step, Whole{}, 1);
    body(i + 2 * step, Whole{}, 2);
    body(i + 3 * step, Whole{}, 3);
  }
  for (; i + step <= n; i += step) body(i, Whole{}, 0);
  if (i < n) body(i, Part{n - i}, 0);
}

}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#endif
