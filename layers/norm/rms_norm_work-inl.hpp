// What RMSNorm's forward and backward work on; read once per SIMD target, like simd-inl.hpp.

#ifndef STEADY_LAYERS_NORM_RMS_NORM_WORK
#define STEADY_LAYERS_NORM_RMS_NORM_WORK
#include <steadygrad/layers/norm/row_stats.hpp>
namespace steady {
namespace {

template <class T>
struct RmsNormWork {
  std::int64_t width, period;
  double eps;
  T offset;  // of the gain
  const T* x;
  const T* dy;  // backward
  detail::RowGains<T> gains;
  T* out;      // y or dx, dx may be null
  T* stats;    // written by forward where not null, read by backward
  bool large;  // not in the caches: fetched ahead of its use, a single output written past them
  const T* left = nullptr;  // forward, with right: x, written to sum, is their sum
  const T* right = nullptr;
  T* sum = nullptr;
  const T* residual = nullptr;  // backward
};

}  // namespace
}  // namespace steady
#endif

#if defined(STEADY_LAYERS_NORM_RMS_NORM_WORK_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef STEADY_LAYERS_NORM_RMS_NORM_WORK_INL_HPP
#undef STEADY_LAYERS_NORM_RMS_NORM_WORK_INL_HPP
#else
#define STEADY_LAYERS_NORM_RMS_NORM_WORK_INL_HPP
#endif

#include <steadygrad/layers/norm/row_walk-inl.hpp>
#include <steadygrad/layers/norm/row_work-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

/// The gains from element `at` of a period on. Here as below values and pointers by value: through
/// a reference to the work they would be read again after every store.
template <class T>
struct Gains {
  const T* gamma;
  std::int64_t mask;
  Vec<T> offset;

  HWY_INLINE Gains(const RmsNormWork<T>& a, std::int64_t at)
      : gamma(a.gains.gamma + (at & a.gains.gamma_mask)),
        mask(a.gains.gamma_mask),
        offset(fill(a.offset)) {}
  template <class Part>
  [[nodiscard]] HWY_INLINE Vec<T> at(std::int64_t j, Part part) const {
    return hn::Add(load(gamma + (j & mask), part), offset);
  }
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#endif
