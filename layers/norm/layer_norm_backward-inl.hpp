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

#include <algorithm>
#include <steadygrad/layers/norm/row_walk-inl.hpp>
#include <steadygrad/layers/norm/row_work-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

/// Sums over a row of w and of w * (x - mean).
struct WeightedSums {
  double s1, s2;
};

template <class W, class T>
HWY_INLINE WeightedSums weighted_sums(const LayerNormBackward<T>& a, std::int64_t r) {
  const T* x = a.x + r * a.width;
  const T* dy = a.dy + r * a.width;
  const std::int64_t first = first_gain(a, r), mask = a.gains.gamma_mask;
  const Vec<T> mean = fill(a.stats[3 * r]);
  WeightedSums sums{0, 0};
  for_pieces<T>(a.width, a.period, [&](Piece p) HWY_ATTR {
    const T* gamma = a.gains.gamma + ((first + p.at) & mask);
    Sum<T> sum1, sum2;
    for_vectors<T>(p.n, [&](std::int64_t j, auto part, int k) HWY_ATTR {
      if constexpr (W::Ahead) {
        hwy::Prefetch(x + p.i + j + Ahead);
        hwy::Prefetch(dy + p.i + j + Ahead);
      }
      const Vec<T> g = load(gamma + (j & mask), part);
      const Vec<T> w = hn::Mul(load(dy + p.i + j, part), g);
      sum1.add(k, w);
      sum2.add_product(k, w, hn::Sub(load(x + p.i + j, part), mean));
    });
    sums.s1 += static_cast<double>(sum1.total());
    sums.s2 += static_cast<double>(sum2.total());
  });
  return sums;
}

/// m(w) and m(w * xhat) of a row.
template <class T>
struct RowMeans {
  T w, wx;
};

template <class T>
HWY_INLINE RowMeans<T> row_means(const LayerNormBackward<T>& a, std::int64_t r,
                                 const WeightedSums& s) {
  const auto count = static_cast<double>(a.width);
  const T* stats = a.stats + 3 * r;
  return {static_cast<T>(s.s1 / count),
          static_cast<T>((s.s2 - static_cast<double>(stats[1]) * s.s1) *
                         static_cast<double>(stats[2]) / count)};
}

// A piece of dx of row r, its parameter gradients, and that piece of the sums of row `next`, in one
// loop. Pointers by value: through a reference to the work they would be read again after every
// store.
template <class W, class T>
HWY_INLINE void backward_piece(const LayerNormBackward<T>& a, std::int64_t r, std::int64_t next,
                               const RowMeans<T>& means, Piece p, std::int64_t ahead, T* dgamma,
                               T* dbeta, WeightedSums& sums) {
  const std::int64_t here = r * a.width + p.i, there = next * a.width + p.i;
  const T *x = a.x + here, *dy = a.dy + here, *next_x = a.x + there, *next_dy = a.dy + there;
  const T* residual = W::Residual ? a.residual + here : nullptr;
  T* dx = W::Input ? a.dx + here : nullptr;
  const std::int64_t mask = a.gains.gamma_mask, first = first_gain(a, r) + p.at;
  const T* gamma = a.gains.gamma + (first & mask);
  const T* next_gamma = a.gains.gamma + ((first_gain(a, next) + p.at) & mask);
  T* dg = W::Params ? dgamma + first : nullptr;
  T* db = W::Params ? dbeta + first : nullptr;
  const T* stats = a.stats + 3 * r;
  const Vec<T> mean = fill(stats[0]), rstd = fill(stats[2]), low = fill(-stats[1] * stats[2]);
  const Vec<T> mean_w = fill(means.w), mean_wx = fill(means.wx);
  const Vec<T> next_mean = fill(a.stats[3 * next]);
  Sum<T> sum1, sum2;
  for_vectors<T>(p.n, [&](std::int64_t j, auto part, [[maybe_unused]] int k) HWY_ATTR {
    const Vec<T> u = load(dy + j, part);
    const Vec<T> xhat = fma(hn::Sub(load(x + j, part), mean), rstd, low);
    if constexpr (W::Params) {
      store(fma(u, xhat, load<T>(dg + j, part)), dg + j, part);
      store(hn::Add(u, load<T>(db + j, part)), db + j, part);
    }
    if constexpr (W::Input) {
      const Vec<T> w = hn::Mul(u, load(gamma + (j & mask), part));
      Vec<T> d = hn::Mul(rstd, fnma(xhat, mean_wx, hn::Sub(w, mean_w)));
      if constexpr (W::Residual) d = hn::Add(load(residual + j, part), d);
      put<W::Stream>(d, dx + j, part);
      if constexpr (W::Ahead) {
        hwy::Prefetch(next_x + j + ahead);
        hwy::Prefetch(next_dy + j + ahead);
      }
      const Vec<T> next_w = hn::Mul(load(next_dy + j, part), load(next_gamma + (j & mask), part));
      sum1.add(k, next_w);
      sum2.add_product(k, next_w, hn::Sub(load(next_x + j, part), next_mean));
    }
  });
  if constexpr (W::Input) {
    sums.s1 += static_cast<double>(sum1.total());
    sums.s2 += static_cast<double>(sum2.total());
  }
}

// One block of rows; x and dy are read from memory once.
template <class W, class T>
HWY_FLATTEN void backward_block(const LayerNormBackward<T>& a, std::int64_t begin, std::int64_t end,
                                T* dgamma, T* dbeta) {
  const std::int64_t together = rows_in_turn<T>(a.width, 2 * a.width);
  WeightedSums sums[MostTogether] = {};
  RowMeans<T> means[MostTogether] = {};
  for (std::int64_t r = begin; W::Input && r < std::min(begin + together, end); ++r) {
    sums[r - begin] = weighted_sums<W>(a, r);
  }
  for (std::int64_t first = begin; first < end; first += together) {
    const std::int64_t rows = std::min(together, end - first);
    for (std::int64_t k = 0; k < rows; ++k) {
      means[k] = row_means(a, first + k, sums[k]);
      sums[k] = {0, 0};
    }
    for_pieces<T>(a.width, a.period, [&](Piece p) HWY_ATTR {
      for (std::int64_t k = 0; k < rows; ++k) {
        const std::int64_t r = first + k;
        const std::int64_t next = r + together < end ? r + together : r;
        backward_piece<W>(a, r, next, means[k], p, ahead_of(p, k, rows, a.width), dgamma, dbeta,
                          sums[k]);
      }
    });
  }
  end_stream<W::Stream>();
}

template <class T>
void backward_rows(const LayerNormBackward<T>& a, std::int64_t begin, std::int64_t end, T* dgamma,
                   T* dbeta) {
  in_ways(a.dx != nullptr, dgamma != nullptr, a.residual != nullptr, a.large,
          [&](auto ways) { backward_block<decltype(ways)>(a, begin, end, dgamma, dbeta); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#endif
