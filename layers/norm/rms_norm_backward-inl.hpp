// RMSNorm's backward over a block of rows; read once per SIMD target, like simd-inl.hpp.

#if defined(STEADY_LAYERS_NORM_RMS_NORM_BACKWARD_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef STEADY_LAYERS_NORM_RMS_NORM_BACKWARD_INL_HPP
#undef STEADY_LAYERS_NORM_RMS_NORM_BACKWARD_INL_HPP
#else
#define STEADY_LAYERS_NORM_RMS_NORM_BACKWARD_INL_HPP
#endif

#include <steadygrad/layers/norm/rms_norm_work-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

// The sum over a row of w * xhat.
template <class W, class T>
HWY_INLINE double weighted_sum(const RmsNormWork<T>& a, std::int64_t r) {
  const T *x = a.x + r * a.width, *dy = a.dy + r * a.width;
  const Gains<T> gains(a, 0);
  const Vec<T> rstd = fill(a.stats[r]);
  Sum<T> s;
  for_vectors<T>(a.width, [&](std::int64_t j, auto part, int k) HWY_ATTR {
    if constexpr (W::Ahead) {
      hwy::Prefetch(x + j + Ahead);
      hwy::Prefetch(dy + j + Ahead);
    }
    const Vec<T> w = hn::Mul(load(dy + j, part), gains.at(j, part));
    s.add_product(k, w, keep<T>(hn::Mul(load(x + j, part), rstd), part));
  });
  return static_cast<double>(s.total());
}

// dx of row r and its parameter gradient; returns the sum w * xhat of row `next`. In one loop.
template <class W, class T>
HWY_INLINE double backward_row(const RmsNormWork<T>& a, std::int64_t r, std::int64_t next,
                               T mean_of_wx, T* dgamma) {
  const std::int64_t here = r * a.width, there = next * a.width;
  const T *x = a.x + here, *dy = a.dy + here, *next_x = a.x + there, *next_dy = a.dy + there;
  const T* residual = W::Residual ? a.residual + here : nullptr;
  T* dx = W::Input ? a.out + here : nullptr;
  T* dg = W::Params ? dgamma : nullptr;
  const Gains<T> gains(a, 0);
  const Vec<T> rstd = fill(a.stats[r]), next_rstd = fill(a.stats[next]);
  const Vec<T> mean_wx = fill(mean_of_wx);
  Sum<T> s;
  for_vectors<T>(a.width, [&](std::int64_t j, auto part, [[maybe_unused]] int k) HWY_ATTR {
    const Vec<T> u = load(dy + j, part);
    const Vec<T> xhat = hn::Mul(load(x + j, part), rstd);
    if constexpr (W::Params) store(fma(u, xhat, load<T>(dg + j, part)), dg + j, part);
    if constexpr (W::Input) {
      const Vec<T> g = gains.at(j, part);
      Vec<T> d = hn::Mul(rstd, fnma(xhat, mean_wx, hn::Mul(u, g)));
      if constexpr (W::Residual) d = hn::Add(load(residual + j, part), d);
      put<W::Stream>(d, dx + j, part);
      if constexpr (W::Ahead) {
        hwy::Prefetch(next_x + j + Ahead);
        hwy::Prefetch(next_dy + j + Ahead);
      }
      const Vec<T> next_xhat = keep<T>(hn::Mul(load(next_x + j, part), next_rstd), part);
      s.add_product(k, hn::Mul(load(next_dy + j, part), g), next_xhat);
    }
  });
  return W::Input ? static_cast<double>(s.total()) : 0;
}

/// For walk_short.
template <class W, class T>
struct ShortBackward {
  const RmsNormWork<T>& a;
  T* dgamma;
  double inverse;
  double sums[ShortSlots] = {};
  T means[ShortSlots] = {};

  HWY_INLINE void sum(std::int64_t r, std::int64_t slot) {
    if constexpr (W::Input) sums[slot] = weighted_sum<W>(a, r);
  }
  HWY_INLINE void finish(std::int64_t, std::int64_t slot) {
    means[slot] = static_cast<T>(sums[slot] * inverse);
  }
  HWY_INLINE void write(std::int64_t r, std::int64_t slot, std::int64_t next,
                        std::int64_t next_slot) {
    sums[next_slot] = backward_row<W>(a, r, next, means[slot], dgamma);
  }
};

/// Adds a piece of kRows rows from r on to their sums of w * xhat and to the parameter gradient.
template <class W, int kRows, class T>
HWY_INLINE void sum_wide(const RmsNormWork<T>& a, std::int64_t r, Piece p, T* dgamma,
                         double* sums) {
  const std::int64_t width = a.width;
  const T *x = a.x + r * width + p.i, *dy = a.dy + r * width + p.i;
  T* dg = W::Params ? dgamma + p.at : nullptr;
  const Gains<T> gains(a, p.at);
  Vec<T> rstd[kRows], sum_wx[kRows];
  for (int k = 0; k < kRows; ++k) {
    rstd[k] = fill(a.stats[r + k]);
    sum_wx[k] = fill(T(0));
  }
  for_each_vector<T>(p.n, [&](std::int64_t j, auto part) HWY_ATTR {
    const Vec<T> g = gains.at(j, part);
    [[maybe_unused]] Vec<T> u_xhat[kRows];
    for (int k = 0; k < kRows; ++k) {
      const Vec<T> u = load(dy + k * width + j, part), v = load(x + k * width + j, part);
      const Vec<T> xhat = keep<T>(hn::Mul(v, rstd[k]), part);
      if constexpr (W::Params) {
        u_xhat[k] = k % 2 == 0 ? hn::Mul(u, xhat) : fma(u, xhat, u_xhat[k - 1]);
      }
      if constexpr (W::Input) sum_wx[k] = fma(hn::Mul(u, g), xhat, sum_wx[k]);
    }
    if constexpr (W::Params) {
      store(hn::Add(sum_of_rows<T, kRows>(u_xhat), load<T>(dg + j, part)), dg + j, part);
    }
  });
  for (int k = 0; k < kRows && W::Input; ++k) sums[k] += sum_of_lanes<T>(sum_wx[k]);
}

/// A piece of dx of row r.
template <class W, class T>
HWY_INLINE void write_wide(const RmsNormWork<T>& a, std::int64_t r, Piece p, T mean_of_wx) {
  const std::int64_t here = r * a.width + p.i;
  const T *x = a.x + here, *dy = a.dy + here;
  const T* residual = W::Residual ? a.residual + here : nullptr;
  T* dx = a.out + here;
  const Gains<T> gains(a, p.at);
  const Vec<T> rstd = fill(a.stats[r]), mean_wx = fill(mean_of_wx);
  for_vectors<T>(p.n, [=](std::int64_t j, auto part, int) HWY_ATTR {
    const Vec<T> xhat = hn::Mul(load(x + j, part), rstd);
    const Vec<T> w = hn::Mul(load(dy + j, part), gains.at(j, part));
    Vec<T> d = hn::Mul(rstd, fnma(xhat, mean_wx, w));
    if constexpr (W::Residual) d = hn::Add(load(residual + j, part), d);
    put<W::Stream>(d, dx + j, part);
  });
}

/// For walk_wide.
template <class W, class T>
struct WideBackward {
  static constexpr int Slots = WideBackwardRows, Together = WideTogether;
  const RmsNormWork<T>& a;
  T* dgamma;
  double inverse;
  double sums[Slots] = {};
  T means[Slots] = {};

  template <int kRows>
  HWY_INLINE void sum(std::int64_t r, std::int64_t slot, Piece p) {
    sum_wide<W, kRows>(a, r, p, dgamma, sums + slot);
  }
  HWY_INLINE void finish(std::int64_t, std::int64_t slot) {
    means[slot] = static_cast<T>(sums[slot] * inverse);
    sums[slot] = 0;
  }
  HWY_INLINE void write(std::int64_t r, std::int64_t slot, Piece p) {
    if constexpr (W::Input) write_wide<W>(a, r, p, means[slot]);
  }
};

// One block of rows; x and dy are read from memory once.
template <class W, class T>
HWY_FLATTEN void short_block(const RmsNormWork<T>& a, std::int64_t begin, std::int64_t end,
                             T* dgamma) {
  ShortBackward<W, T> walk{a, dgamma, 1.0 / static_cast<double>(a.width)};
  walk_short<T>(begin, end, 2 * a.width, walk);
  end_stream<W::Stream>();
}
template <class W, class T>
HWY_FLATTEN void wide_block(const RmsNormWork<T>& a, std::int64_t begin, std::int64_t end,
                            T* dgamma) {
  WideBackward<W, T> walk{a, dgamma, 1.0 / static_cast<double>(a.width)};
  // A residual comes from memory: whole rows of it are read in order.
  const std::int64_t piece = W::Residual ? a.period : WideBackwardPiece<T>;
  const WideCut cut{a.width, a.period, 2 * a.width, summed_by<T>(1), piece};
  walk_wide<T>(begin, end, cut, walk);
  end_stream<W::Stream>();
}

template <class T>
void backward_rows(const RmsNormWork<T>& a, std::int64_t begin, std::int64_t end, T* dgamma) {
  in_ways(a.out != nullptr, dgamma != nullptr, a.residual != nullptr, a.large, [&](auto ways) {
    using W = decltype(ways);
    is_short<T>(a.width, a.period) ? short_block<W>(a, begin, end, dgamma)
                                   : wide_block<W>(a, begin, end, dgamma);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#endif
