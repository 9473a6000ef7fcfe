// What the kernels of LayerNorm and RMSNorm share beside the walk; read once per SIMD target, like
// simd-inl.hpp.

#if defined(STEADY_LAYERS_NORM_ROW_WORK_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef STEADY_LAYERS_NORM_ROW_WORK_INL_HPP
#undef STEADY_LAYERS_NORM_ROW_WORK_INL_HPP
#else
#define STEADY_LAYERS_NORM_ROW_WORK_INL_HPP
#endif

#include <cstdint>
#include <steadygrad/core/kernels/stream-inl.hpp>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {

/// A row of x, or of the sum that becomes it. Pointers by value: through a reference to the work
/// they would be read again after every store.
template <bool kSum, class T>
struct InputRow {
  const T *x, *left, *right;
  T* sum;

  template <class Work>
  HWY_INLINE InputRow(const Work& a, std::int64_t r)
      : x(a.x + r * a.width), left(nullptr), right(nullptr), sum(nullptr) {
    if constexpr (kSum) {
      left = a.left + r * a.width;
      right = a.right + r * a.width;
      sum = a.sum + r * a.width;
    }
  }
  [[nodiscard]] HWY_INLINE T first() const {
    return kSum ? static_cast<T>(left[0] + right[0]) : x[0];
  }
  HWY_INLINE void fetch(std::int64_t i) const {
    if (!kSum) return hwy::Prefetch(x + i);
    hwy::Prefetch(left + i);
    hwy::Prefetch(right + i);
  }
  template <class Part>
  [[nodiscard]] HWY_INLINE Vec<T> at(std::int64_t i, Part part) const {
    if constexpr (kSum) {
      const Vec<T> v = hn::Add(load(left + i, part), load(right + i, part));
      store(v, sum + i, part);
      return v;
    } else {
      return load(x + i, part);
    }
  }
};

/// run(sum, large), each std::true_type or std::false_type, for what is asked of a forward.
template <class Run>
void in_forward_ways(bool sum, bool large, Run&& run) {
  using Yes = std::true_type;
  using No = std::false_type;
  if (sum) return large ? run(Yes{}, Yes{}) : run(Yes{}, No{});
  large ? run(No{}, Yes{}) : run(No{}, No{});
}

/// What a backward does: dx, parameter gradients, a residual; rows fetched ahead, streamed dx.
template <bool input, bool params, bool residual, bool large>
struct Ways {
  static constexpr bool Input = input, Params = params, Residual = residual, Ahead = large,
                        Stream = large && !residual;
};

/// run(Ways) for what is asked of a backward.
template <class Run>
void in_ways(bool input, bool params, bool residual, bool large, Run&& run) {
  if (!input) return run(Ways<false, true, false, false>{});
  if (residual && large) {
    return params ? run(Ways<true, true, true, true>{}) : run(Ways<true, false, true, true>{});
  }
  if (residual) {
    return params ? run(Ways<true, true, true, false>{}) : run(Ways<true, false, true, false>{});
  }
  if (large) {
    return params ? run(Ways<true, true, false, true>{}) : run(Ways<true, false, false, true>{});
  }
  params ? run(Ways<true, true, false, false>{}) : run(Ways<true, false, false, false>{});
}

}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#endif
