// LayerNorm's backward over a block of rows; read once per SIMD target, like simd-inl.hpp.

#ifndef STEADY_LAYERS_NORM_LAYER_NORM_BACKWARD_WORK
#define STEADY_LAYERS_NORM_LAYER_NORM_BACKWARD_WORK
#include <steadygrad/layers/norm/row_stats.hpp>
namespace steady {
namespace {

template <class T>
struct LayerNormBackward {
  std::int64_t width, period, cycle;
  const T* x;
  const T* dy;
  const T* stats;
  detail::RowGains<T> gains;
  T* dx;
  bool large;
  const T* residual;  // may be null
};

}  // namespace
}  // namespace steady
#endif

#if defined(STEADY_LAYERS_NORM_LAYER_NORM_BACKWARD_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef STEADY_LAYERS_NORM_LAYER_NORM_BACKWARD_INL_HPP
#undef STEADY_LAYERS_NORM_LAYER_NORM_BACKWARD_INL_HPP
#else
#define STEADY_LAYERS_NORM_LAYER_NORM_BACKWARD_INL_HPP
#endif

#include <steadygrad/layers/norm/row_walk-inl.hpp>
#include <steadygrad/layers/norm/row_work-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

/// Sums over a row of w and of w * xhat.
struct WeightedSums {
  double w = 0, wx = 0;
};

/// m(w) and m(w * xhat) of a row.
template <class T>
struct RowMeans {
  T w, wx;

  HWY_INLINE RowMeans() : w(0), wx(0) {}
  HWY_INLINE RowMeans(const WeightedSums& s, double inverse)
      : w(static_cast<T>(s.w * inverse)), wx(static_cast<T>(s.wx * inverse)) {}
};

/// xhat = (x - mean) * rstd of one row; 0 in absent lanes, where it could be infinite.
template <class T>
struct Normalized {
  Vec<T> mean, rstd, low;

  HWY_INLINE Normalized() : mean(fill(T(0))), rstd(mean), low(mean) {}
  HWY_INLINE explicit Normalized(const T* stats)
      : mean(fill(stats[0])), rstd(fill(stats[2])), low(fill(-stats[1] * stats[2])) {}
  template <class Part>
  [[nodiscard]] HWY_INLINE Vec<T> at(const T* x, Part part) const {
    return keep<T>(fma(hn::Sub(load(x, part), mean), rstd, low), part);
  }
};

template <class W, class T>
HWY_INLINE WeightedSums weighted_sums(const LayerNormBackward<T>& a, std::int64_t r) {
  const T *x = a.x + r * a.width, *dy = a.dy + r * a.width;
  const std::int64_t mask = a.gains.gamma_mask;
  const T* gamma = a.gains.gamma + (first_gain(a, r) & mask);
  const Normalized<T> normalized(a.stats + 3 * r);
  Sum<T> sum_w, sum_wx;
  for_vectors<T>(a.width, [&](std::int64_t j, auto part, int k) HWY_ATTR {
    if constexpr (W::Ahead) {
      hwy::Prefetch(x + j + Ahead);
      hwy::Prefetch(dy + j + Ahead);
    }
    const Vec<T> w = hn::Mul(load(dy + j, part), load(gamma + (j & mask), part));
    sum_w.add(k, w);
    sum_wx.add_product(k, w, normalized.at(x + j, part));
  });
  return {static_cast<double>(sum_w.total()), static_cast<double>(sum_wx.total())};
}

// dx of row r, its parameter gradients, and the sums of row `next`, in one loop. Pointers by value:
// through a reference to the work they would be read again after every store.
template <class W, class T>
HWY_INLINE WeightedSums backward_row(const LayerNormBackward<T>& a, std::int64_t r,
                                     std::int64_t next, const RowMeans<T>& means, T* dgamma,
                                     T* dbeta) {
  const std::int64_t here = r * a.width, there = next * a.width;
  const T *x = a.x + here, *dy = a.dy + here, *next_x = a.x + there, *next_dy = a.dy + there;
  const T* residual = W::Residual ? a.residual + here : nullptr;
  T* dx = W::Input ? a.dx + here : nullptr;
  const std::int64_t mask = a.gains.gamma_mask, first = first_gain(a, r);
  const T* gamma = a.gains.gamma + (first & mask);
  const T* next_gamma = a.gains.gamma + (first_gain(a, next) & mask);
  T* dg = W::Params ? dgamma + first : nullptr;
  T* db = W::Params ? dbeta + first : nullptr;
  const Normalized<T> normalized(a.stats + 3 * r), next_normalized(a.stats + 3 * next);
  const Vec<T> mean_w = fill(means.w), mean_wx = fill(means.wx);
  Sum<T> sum_w, sum_wx;
  for_vectors<T>(a.width, [&](std::int64_t j, auto part, [[maybe_unused]] int k) HWY_ATTR {
    const Vec<T> u = load(dy + j, part);
    const Vec<T> xhat = normalized.at(x + j, part);
    if constexpr (W::Params) {
      store(fma(u, xhat, load<T>(dg + j, part)), dg + j, part);
      store(hn::Add(u, load<T>(db + j, part)), db + j, part);
    }
    if constexpr (W::Input) {
      const Vec<T> w = hn::Mul(u, load(gamma + (j & mask), part));
      Vec<T> d = hn::Mul(normalized.rstd, fnma(xhat, mean_wx, hn::Sub(w, mean_w)));
      if constexpr (W::Residual) d = hn::Add(load(residual + j, part), d);
      put<W::Stream>(d, dx + j, part);
      if constexpr (W::Ahead) {
        hwy::Prefetch(next_x + j + Ahead);
        hwy::Prefetch(next_dy + j + Ahead);
      }
      const Vec<T> next_w = hn::Mul(load(next_dy + j, part), load(next_gamma + (j & mask), part));
      sum_w.add(k, next_w);
      sum_wx.add_product(k, next_w, next_normalized.at(next_x + j, part));
    }
  });
  if constexpr (!W::Input) return {};
  return {static_cast<double>(sum_w.total()), static_cast<double>(sum_wx.total())};
}

/// For walk_short.
template <class W, class T>
struct ShortBackward {
  const LayerNormBackward<T>& a;
  T *dgamma, *dbeta;
  double inverse;
  WeightedSums sums[ShortSlots] = {};
  RowMeans<T> means[ShortSlots] = {};

  HWY_INLINE void sum(std::int64_t r, std::int64_t slot) {
    if constexpr (W::Input) sums[slot] = weighted_sums<W>(a, r);
  }
  HWY_INLINE void finish(std::int64_t, std::int64_t slot) {
    means[slot] = RowMeans<T>(sums[slot], inverse);
  }
  HWY_INLINE void write(std::int64_t r, std::int64_t slot, std::int64_t next,
                        std::int64_t next_slot) {
    sums[next_slot] = backward_row<W>(a, r, next, means[slot], dgamma, dbeta);
  }
};

/// Adds a piece of kRows rows from r on to their sums and to the parameter gradients.
template <class W, int kRows, class T>
HWY_INLINE void sum_wide(const LayerNormBackward<T>& a, std::int64_t r, Piece p, T* dgamma,
                         T* dbeta, WeightedSums* sums) {
  const std::int64_t width = a.width, mask = a.gains.gamma_mask, first = first_gain(a, r) + p.at;
  const T *x = a.x + r * width + p.i, *dy = a.dy + r * width + p.i;
  const T* gamma = a.gains.gamma + (first & mask);
  T* dg = W::Params ? dgamma + first : nullptr;
  T* db = W::Params ? dbeta + first : nullptr;
  Normalized<T> normalized[kRows];
  Vec<T> sum_w[kRows], sum_wx[kRows];
  for (int k = 0; k < kRows; ++k) {
    normalized[k] = Normalized<T>(a.stats + 3 * (r + k));
    sum_w[k] = sum_wx[k] = fill(T(0));
  }
  for_each_vector<T>(p.n, [&](std::int64_t j, auto part) HWY_ATTR {
    const Vec<T> g = load(gamma + (j & mask), part);
    [[maybe_unused]] Vec<T> u_xhat[kRows], u_all[kRows];
    for (int k = 0; k < kRows; ++k) {
      const Vec<T> u = load(dy + k * width + j, part);
      const Vec<T> xhat = normalized[k].at(x + k * width + j, part);
      if constexpr (W::Params) {
        u_xhat[k] = k % 2 == 0 ? hn::Mul(u, xhat) : fma(u, xhat, u_xhat[k - 1]);
        u_all[k] = k % 2 == 0 ? u : hn::Add(u, u_all[k - 1]);
      }
      if constexpr (W::Input) {
        const Vec<T> w = hn::Mul(u, g);
        sum_w[k] = hn::Add(sum_w[k], w);
        sum_wx[k] = fma(w, xhat, sum_wx[k]);
      }
    }
    if constexpr (W::Params) {
      store(hn::Add(sum_of_rows<T, kRows>(u_xhat), load<T>(dg + j, part)), dg + j, part);
      store(hn::Add(sum_of_rows<T, kRows>(u_all), load<T>(db + j, part)), db + j, part);
    }
  });
  for (int k = 0; k < kRows && W::Input; ++k) {
    sums[k].w += sum_of_lanes<T>(sum_w[k]);
    sums[k].wx += sum_of_lanes<T>(sum_wx[k]);
  }
}

/// A piece of dx of row r.
template <class W, class T>
HWY_INLINE void write_wide(const LayerNormBackward<T>& a, std::int64_t r, Piece p,
                           const RowMeans<T>& means) {
  const std::int64_t here = r * a.width + p.i;
  const std::int64_t mask = a.gains.gamma_mask;
  const T *x = a.x + here, *dy = a.dy + here;
  const T* gamma = a.gains.gamma + ((first_gain(a, r) + p.at) & mask);
  const T* residual = W::Residual ? a.residual + here : nullptr;
  T* dx = a.dx + here;
  const Normalized<T> normalized(a.stats + 3 * r);
  const Vec<T> mean_w = fill(means.w), mean_wx = fill(means.wx);
  for_vectors<T>(p.n, [=](std::int64_t j, auto part, int) HWY_ATTR {
    const Vec<T> w = hn::Mul(load(dy + j, part), load(gamma + (j & mask), part));
    const Vec<T> xhat = normalized.at(x + j, part);
    Vec<T> d = hn::Mul(normalized.rstd, fnma(xhat, mean_wx, hn::Sub(w, mean_w)));
    if constexpr (W::Residual) d = hn::Add(load(residual + j, part), d);
    put<W::Stream>(d, dx + j, part);
  });
}

/// For walk_wide.
template <class W, class T>
struct WideBackward {
  static constexpr int Slots = WideBackwardRows, Together = WideTogether;
  const LayerNormBackward<T>& a;
  T *dgamma, *dbeta;
  double inverse;
  WeightedSums sums[Slots] = {};
  RowMeans<T> means[Slots] = {};

  template <int kRows>
  HWY_INLINE void sum(std::int64_t r, std::int64_t slot, Piece p) {
    sum_wide<W, kRows>(a, r, p, dgamma, dbeta, sums + slot);
  }
  HWY_INLINE void finish(std::int64_t, std::int64_t slot) {
    means[slot] = RowMeans<T>(sums[slot], inverse);
    sums[slot] = {};
  }
  HWY_INLINE void write(std::int64_t r, std::int64_t slot, Piece p) {
    if constexpr (W::Input) write_wide<W>(a, r, p, means[slot]);
  }
};

// One block of rows; x and dy are read from memory once.
template <class W, class T>
HWY_FLATTEN void short_block(const LayerNormBackward<T>& a, std::int64_t begin, std::int64_t end,
                             T* dgamma, T* dbeta) {
  ShortBackward<W, T> walk{a, dgamma, dbeta, 1.0 / static_cast<double>(a.width)};
  walk_short<T>(begin, end, 2 * a.width, walk);
  end_stream<W::Stream>();
}
template <class W, class T>
HWY_FLATTEN void wide_block(const LayerNormBackward<T>& a, std::int64_t begin, std::int64_t end,
                            T* dgamma, T* dbeta) {
  WideBackward<W, T> walk{a, dgamma, dbeta, 1.0 / static_cast<double>(a.width)};
  // A residual comes from memory: whole rows of it are read in order.
  const std::int64_t piece = W::Residual ? a.period : WideBackwardPiece<T>;
  const WideCut cut{a.width, a.period, 2 * a.width, summed_by<T>(1), piece, a.cycle == 1};
  walk_wide<T>(begin, end, cut, walk);
  end_stream<W::Stream>();
}

template <class T>
void backward_rows(const LayerNormBackward<T>& a, std::int64_t begin, std::int64_t end, T* dgamma,
                   T* dbeta) {
  in_ways(a.dx != nullptr, dgamma != nullptr, a.residual != nullptr, a.large, [&](auto ways) {
    using W = decltype(ways);
    is_short<T>(a.width, a.period) ? short_block<W>(a, begin, end, dgamma, dbeta)
                                   : wide_block<W>(a, begin, end, dgamma, dbeta);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#endif
