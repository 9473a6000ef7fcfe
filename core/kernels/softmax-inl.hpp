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

HWY_INLINE math::Float larger(math::Float a, math::Float b) {
  return hn::IfThenElse(hn::Gt(b, a), b, a);
}

/// Largest element that is not NaN, -inf for none. Elements read twice do no harm to a maximum.
HWY_INLINE float row_max(const float* x, std::int64_t width) {
  const std::int64_t step = lanes<float>();
  const math::Float lowest = fill(-std::numeric_limits<float>::infinity());
  const Tag<float> d;
  if (width < step) {
    const math::Float v = load(x, Part{width});
    const math::Float inside =
        hn::IfThenElse(hn::FirstN(d, static_cast<std::size_t>(width)), v, lowest);
    return hn::GetLane(hn::MaxOfLanes(d, larger(lowest, inside)));
  }
  math::Float m0 = lowest;
  math::Float m1 = lowest;
  std::int64_t i = 0;
  for (; i + 2 * step <= width; i += 2 * step) {
    m0 = larger(m0, load(x + i, Whole{}));
    m1 = larger(m1, load(x + i + step, Whole{}));
  }
  if (i + step <= width) m0 = larger(m0, load(x + i, Whole{}));
  m1 = larger(m1, load(x + width - step, Whole{}));
  return hn::GetLane(hn::MaxOfLanes(d, larger(m0, m1)));
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
