// What the kernels with a softmax in them share: largest element and sum of a row. Included once
// per SIMD target after <hwy/foreach_target.h>.

#if defined(STEADY_CORE_KERNELS_SOFTMAX_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef STEADY_CORE_KERNELS_SOFTMAX_INL_HPP
#undef STEADY_CORE_KERNELS_SOFTMAX_INL_HPP
#else
#define STEADY_CORE_KERNELS_SOFTMAX_INL_HPP
#endif

#include <limits>
#include <steadygrad/core/kernels/math-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {

/// Elements summed in float lanes before the sum goes on in double.
constexpr std::int64_t SumBlock = 2048;

/// Four vectors of largest elements so far: independent chains. NaN may or may not be passed over:
/// a row that holds one is NaN through its sum.
struct Largest {
  math::Float part[4];

  // Spelled out: an implicit constructor would not be compiled for the target.
  HWY_INLINE Largest() : part{lowest(), lowest(), lowest(), lowest()} {}
  HWY_INLINE void add(int k, math::Float v, Whole) { part[k] = hn::Max(v, part[k]); }
  HWY_INLINE void add(int k, math::Float v, Part p) {
    const auto inside = hn::FirstN(Tag<float>(), static_cast<std::size_t>(p.count));
    part[k] = hn::Max(hn::IfThenElse(inside, v, lowest()), part[k]);
  }
  /// -inf for none.
  [[nodiscard]] HWY_INLINE float total() const {
    const math::Float v = hn::Max(hn::Max(part[0], part[1]), hn::Max(part[2], part[3]));
    return hn::GetLane(hn::MaxOfLanes(Tag<float>(), v));
  }
  static HWY_INLINE math::Float lowest() { return fill(-std::numeric_limits<float>::infinity()); }
};

HWY_INLINE float row_max(const float* x, std::int64_t width) {
  Largest largest;
  for_vectors<float>(
      width, [&](std::int64_t i, auto part, int k) { largest.add(k, load(x + i, part), part); });
  return largest.total();
}

/// Sum over a row of term(i, part), which is 0 in absent lanes.
template <class Term>
HWY_INLINE double row_sum(std::int64_t width, const Term& term) {
  double total = 0;
  for (std::int64_t first = 0; first < width; first += SumBlock) {
    Sum<float> sum;
    for_vectors<float>(std::min(SumBlock, width - first), [&](std::int64_t i, auto part, int k) {
      sum.add(k, term(first + i, part));
    });
    total += static_cast<double>(sum.total());
  }
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#endif
