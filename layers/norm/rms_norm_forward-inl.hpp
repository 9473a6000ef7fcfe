// RMSNorm's forward over a block of rows; read once per SIMD target, like simd-inl.hpp.

#if defined(STEADY_LAYERS_NORM_RMS_NORM_FORWARD_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef STEADY_LAYERS_NORM_RMS_NORM_FORWARD_INL_HPP
#undef STEADY_LAYERS_NORM_RMS_NORM_FORWARD_INL_HPP
#else
#define STEADY_LAYERS_NORM_RMS_NORM_FORWARD_INL_HPP
#endif

#include <cmath>
#include <limits>
#include <steadygrad/layers/norm/rms_norm_work-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

/// Sum of squares in double: of a row whose squares overflow in float.
template <class T>
double wide_sum(const T* x, std::int64_t width) {
  double sum = 0;
  for (std::int64_t i = 0; i < width; ++i) {
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return sum;
}

template <bool kSum, bool kLarge, class T>
HWY_INLINE double row_sum(const RmsNormWork<T>& a, std::int64_t r) {
  const InputRow<kSum, T> x(a, r);
  Sum<T> s;
  for_vectors<T>(a.width, [&](std::int64_t j, auto part, int k) HWY_ATTR {
    if (kLarge) x.fetch(j + Ahead);
    const Vec<T> v = x.at(j, part);
    s.add_product(k, v, v);
  });
  return static_cast<double>(s.total());
}

// Scales row r and returns the sum of squares of row `next`, in one loop.
template <bool kSum, bool kLarge, class T>
HWY_INLINE double scaled_row(const RmsNormWork<T>& a, std::int64_t r, std::int64_t next, T scale) {
  const T* x = a.x + r * a.width;
  T* y = a.out + r * a.width;
  const InputRow<kSum, T> next_x(a, next);
  const Gains<T> gains(a, 0);
  const Vec<T> rstd = fill(scale);
  Sum<T> s;
  for_vectors<T>(a.width, [&](std::int64_t j, auto part, int k) HWY_ATTR {
    const Vec<T> xhat = hn::Mul(load(x + j, part), rstd);
    put<kLarge && !kSum>(hn::Mul(xhat, gains.at(j, part)), y + j, part);
    if (kLarge) next_x.fetch(j + Ahead);
    const Vec<T> v = next_x.at(j, part);
    s.add_product(k, v, v);
  });
  return static_cast<double>(s.total());
}

/// r of row `row` from its sum of squares.
template <class T>
HWY_INLINE T finished_row(const RmsNormWork<T>& a, std::int64_t row, double inverse, double sum) {
  if (sizeof(T) == 4 && !(sum <= std::numeric_limits<double>::max())) {
    sum = wide_sum(a.x + row * a.width, a.width);
  }
  const T scale = static_cast<T>(1.0 / std::sqrt(sum * inverse + a.eps));
  if (a.stats != nullptr) a.stats[row] = scale;
  return scale;
}

/// For walk_short.
template <bool kSum, bool kLarge, class T>
struct ShortForward {
  const RmsNormWork<T>& a;
  double inverse;
  double sums[ShortSlots] = {};
  T scales[ShortSlots] = {};

  HWY_INLINE void sum(std::int64_t r, std::int64_t slot) {
    sums[slot] = row_sum<kSum, kLarge>(a, r);
  }
  HWY_INLINE void finish(std::int64_t r, std::int64_t slot) {
    scales[slot] = finished_row(a, r, inverse, sums[slot]);
  }
  HWY_INLINE void write(std::int64_t r, std::int64_t slot, std::int64_t next,
                        std::int64_t next_slot) {
    sums[next_slot] = scaled_row<kSum, kLarge>(a, r, next, scales[slot]);
  }
};

/// For walk_wide.
template <bool kSum, bool kLarge, class T>
struct WideForward {
  static constexpr int Slots = WideForwardRows, Together = 1;
  const RmsNormWork<T>& a;
  double inverse;
  double sums[Slots] = {};
  T scales[Slots] = {};

  template <int kRows>
  HWY_INLINE void sum(std::int64_t r, std::int64_t slot, Piece p) {
    const InputRow<kSum, T> x(a, r);
    Sum<T> s;
    for_vectors<T>(p.n, [&](std::int64_t j, auto part, int k) HWY_ATTR {
      if (kLarge) x.fetch(p.i + j + WideAhead);
      const Vec<T> v = x.at(p.i + j, part);
      s.add_product(k, v, v);
    });
    sums[slot] += static_cast<double>(s.total());
  }
  HWY_INLINE void finish(std::int64_t r, std::int64_t slot) {
    scales[slot] = finished_row(a, r, inverse, sums[slot]);
    sums[slot] = 0;
  }
  HWY_INLINE void write(std::int64_t r, std::int64_t slot, Piece p) {
    const T* x = a.x + r * a.width + p.i;
    T* y = a.out + r * a.width + p.i;
    const Gains<T> gains(a, p.at);
    const Vec<T> rstd = fill(scales[slot]);
    for_vectors<T>(p.n, [=](std::int64_t j, auto part, int) HWY_ATTR {
      const Vec<T> xhat = hn::Mul(load(x + j, part), rstd);
      put<kLarge && !kSum>(hn::Mul(xhat, gains.at(j, part)), y + j, part);
    });
  }
};

template <bool kSum, bool kLarge, class T>
HWY_FLATTEN void short_rows(const RmsNormWork<T>& a, std::int64_t begin, std::int64_t end) {
  ShortForward<kSum, kLarge, T> walk{a, 1.0 / static_cast<double>(a.width)};
  walk_short<T>(begin, end, a.width, walk);
  end_stream<kLarge && !kSum>();
}
template <bool kSum, bool kLarge, class T>
HWY_FLATTEN void wide_rows(const RmsNormWork<T>& a, std::int64_t begin, std::int64_t end) {
  WideForward<kSum, kLarge, T> walk{a, 1.0 / static_cast<double>(a.width)};
  const WideCut cut{a.width, a.period, a.width, summed_by<T>(4), WideForwardPiece<T>};
  walk_wide<T>(begin, end, cut, walk);
  end_stream<kLarge && !kSum>();
}

template <class T>
void forward_rows(const RmsNormWork<T>& a, std::int64_t begin, std::int64_t end) {
  in_forward_ways(a.sum != nullptr, a.large, [&](auto sum, auto large) {
    is_short<T>(a.width, a.period) ? short_rows<sum(), large()>(a, begin, end)
                                   : wide_rows<sum(), large()>(a, begin, end);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#endif
