// LayerNorm's forward over a block of rows; read once per SIMD target, like simd-inl.hpp.

#ifndef STEADY_LAYERS_NORM_LAYER_NORM_FORWARD_WORK
#define STEADY_LAYERS_NORM_LAYER_NORM_FORWARD_WORK
#include <steadygrad/layers/norm/row_stats.hpp>
namespace steady {
namespace {

template <class T>
struct LayerNormForward {
  std::int64_t width, period, cycle;
  double eps;
  const T* x;
  detail::RowGains<T> gains;
  T* y;
  T* stats;    // may be null
  bool large;  // not in the caches: fetched ahead of its use, a single output written past them
  const T* left = nullptr;  // with right: x, written here, is their sum
  const T* right = nullptr;
  T* sum = nullptr;
};

}  // namespace
}  // namespace steady
#endif

#if defined(STEADY_LAYERS_NORM_LAYER_NORM_FORWARD_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef STEADY_LAYERS_NORM_LAYER_NORM_FORWARD_INL_HPP
#undef STEADY_LAYERS_NORM_LAYER_NORM_FORWARD_INL_HPP
#else
#define STEADY_LAYERS_NORM_LAYER_NORM_FORWARD_INL_HPP
#endif

#include <algorithm>
#include <cmath>
#include <limits>
#include <steadygrad/layers/norm/row_walk-inl.hpp>
#include <steadygrad/layers/norm/row_work-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

template <class T>
struct RowStats {
  T mean, mean_lo, rstd;
};

/// Statistics in double: of a row whose squares overflow in float.
template <class T>
RowStats<T> wide_statistics(const T* x, std::int64_t width, double eps) {
  const auto count = static_cast<double>(width);
  double sum = 0, q = 0;
  for (std::int64_t i = 0; i < width; ++i) sum += static_cast<double>(x[i]);
  const double mean = sum / count;
  for (std::int64_t i = 0; i < width; ++i) {
    const double d = static_cast<double>(x[i]) - mean;
    q += d * d;
  }
  const T high = static_cast<T>(mean);
  return {high, static_cast<T>(mean - static_cast<double>(high)),
          static_cast<T>(1.0 / std::sqrt(q / count + eps))};
}

/// Sums over a row of d = x - pivot and of d^2.
struct Shifted {
  double c, q;
};

// Statistics from one pass, d = x - K with the first element of the row as K:
//   mean = K + c/D,  D * var = q - c^2/D.
// The error of q is of the order of eps * q = eps * (D * var + c^2/D): harmless while K lies within
// two standard deviations of the mean. Where it does not, the row, which a cache still holds, is
// summed again around its mean. The mean is split into (mean, mean_lo), so that x - mean is exactly
// 0 in a constant row.
template <class T>
HWY_INLINE Shifted again(const T* x, std::int64_t width, T pivot) {
  const Vec<T> k0 = fill(pivot);
  Shifted sums{0, 0};
  const std::int64_t block = sum_block<T>();
  for (std::int64_t base = 0; base < width; base += block) {
    Sum<T> c, q;
    for_vectors<T>(std::min(block, width - base), [&](std::int64_t i, auto part, int k) HWY_ATTR {
      const Vec<T> d = keep<T>(hn::Sub(load(x + base + i, part), k0), part);
      c.add(k, d);
      q.add_product(k, d, d);
    });
    sums.c += static_cast<double>(c.total());
    sums.q += static_cast<double>(q.total());
  }
  return sums;
}

template <class T>
HWY_INLINE RowStats<T> row_statistics(const T* x, std::int64_t width, double inverse, double eps,
                                      Shifted s) {
  constexpr double Far = 0.8;  // c^2/D over q where K is two standard deviations away
  double pivot = static_cast<double>(x[0]);
  if (!(s.q <= static_cast<double>(std::numeric_limits<T>::max()))) {
    if (sizeof(T) == 4) return wide_statistics(x, width, eps);
  } else if (s.c * s.c * inverse > Far * s.q) {
    const T mean = static_cast<T>(pivot + s.c * inverse);
    s = again(x, width, mean);
    pivot = static_cast<double>(mean);
  }
  const double low = s.c * inverse;
  const double var = (s.q - s.c * low) * inverse;
  const T mean = static_cast<T>(pivot + low);
  const double rest = (pivot - static_cast<double>(mean)) + low;
  return {mean, static_cast<T>(rest),
          static_cast<T>(1.0 / std::sqrt((var < 0 ? 0 : var) + eps))};  // a NaN stays one
}

template <bool kSum, bool kLarge, class T>
HWY_INLINE Shifted row_sums(const LayerNormForward<T>& a, std::int64_t r) {
  const InputRow<kSum, T> x(a, r);
  const Vec<T> pivot = fill(x.first());
  Sum<T> c, q;
  for_vectors<T>(a.width, [&](std::int64_t j, auto part, int k) HWY_ATTR {
    if (kLarge) x.fetch(j + Ahead);
    const Vec<T> d = keep<T>(hn::Sub(x.at(j, part), pivot), part);
    c.add(k, d);
    q.add_product(k, d, d);
  });
  return {static_cast<double>(c.total()), static_cast<double>(q.total())};
}

// Normalizes row r and sums row `next`, in one loop.
template <bool kSum, bool kLarge, class T>
HWY_INLINE Shifted normalized_row(const LayerNormForward<T>& a, std::int64_t r, std::int64_t next,
                                  const RowStats<T>& stats) {
  const T* x = a.x + r * a.width;
  T* y = a.y + r * a.width;
  const InputRow<kSum, T> next_x(a, next);
  const std::int64_t gamma_mask = a.gains.gamma_mask, beta_mask = a.gains.beta_mask;
  const T* gamma = a.gains.gamma + (first_gain(a, r) & gamma_mask);
  const T* beta = a.gains.beta + (first_gain(a, r) & beta_mask);
  const Vec<T> mean = fill(stats.mean), rstd = fill(stats.rstd);
  const Vec<T> low = fill(-stats.mean_lo * stats.rstd);
  const Vec<T> pivot = fill(next_x.first());
  Sum<T> c, q;
  for_vectors<T>(a.width, [&](std::int64_t j, auto part, int k) HWY_ATTR {
    const Vec<T> xhat = fma(hn::Sub(load(x + j, part), mean), rstd, low);
    const Vec<T> g = load(gamma + (j & gamma_mask), part);
    put<kLarge && !kSum>(fma(xhat, g, load(beta + (j & beta_mask), part)), y + j, part);
    if (kLarge) next_x.fetch(j + Ahead);
    const Vec<T> d = keep<T>(hn::Sub(next_x.at(j, part), pivot), part);
    c.add(k, d);
    q.add_product(k, d, d);
  });
  return {static_cast<double>(c.total()), static_cast<double>(q.total())};
}

template <class T>
HWY_INLINE RowStats<T> finished_row(const LayerNormForward<T>& a, std::int64_t r, double inverse,
                                    const Shifted& sums) {
  const RowStats<T> stats = row_statistics(a.x + r * a.width, a.width, inverse, a.eps, sums);
  if (a.stats != nullptr) {
    T* s = a.stats + 3 * r;
    s[0] = stats.mean;
    s[1] = stats.mean_lo;
    s[2] = stats.rstd;
  }
  return stats;
}

/// For walk_short.
template <bool kSum, bool kLarge, class T>
struct ShortForward {
  const LayerNormForward<T>& a;
  double inverse;
  Shifted sums[ShortSlots] = {};
  RowStats<T> stats[ShortSlots] = {};

  HWY_INLINE void sum(std::int64_t r, std::int64_t slot) {
    sums[slot] = row_sums<kSum, kLarge>(a, r);
  }
  HWY_INLINE void finish(std::int64_t r, std::int64_t slot) {
    stats[slot] = finished_row(a, r, inverse, sums[slot]);
  }
  HWY_INLINE void write(std::int64_t r, std::int64_t slot, std::int64_t next,
                        std::int64_t next_slot) {
    sums[next_slot] = normalized_row<kSum, kLarge>(a, r, next, stats[slot]);
  }
};

/// Adds a piece of row r to its sums.
template <bool kSum, bool kLarge, class T>
HWY_INLINE void sum_wide(const LayerNormForward<T>& a, std::int64_t r, Piece p, Shifted& sums) {
  const InputRow<kSum, T> x(a, r);
  const Vec<T> pivot = fill(x.first());
  Sum<T> c, q;
  for_vectors<T>(p.n, [&](std::int64_t j, auto part, int k) HWY_ATTR {
    if (kLarge) x.fetch(p.i + j + WideAhead);
    const Vec<T> d = keep<T>(hn::Sub(x.at(p.i + j, part), pivot), part);
    c.add(k, d);
    q.add_product(k, d, d);
  });
  sums.c += static_cast<double>(c.total());
  sums.q += static_cast<double>(q.total());
}

/// Normalizes a piece of row r.
template <bool kStream, class T>
HWY_INLINE void write_wide(const LayerNormForward<T>& a, std::int64_t r, Piece p,
                           const RowStats<T>& stats) {
  const T* x = a.x + r * a.width + p.i;
  T* y = a.y + r * a.width + p.i;
  const std::int64_t gamma_mask = a.gains.gamma_mask, beta_mask = a.gains.beta_mask;
  const std::int64_t first = first_gain(a, r) + p.at;
  const T* gamma = a.gains.gamma + (first & gamma_mask);
  const T* beta = a.gains.beta + (first & beta_mask);
  const Vec<T> mean = fill(stats.mean), rstd = fill(stats.rstd);
  const Vec<T> low = fill(-stats.mean_lo * stats.rstd);
  for_vectors<T>(p.n, [=](std::int64_t j, auto part, int) HWY_ATTR {
    const Vec<T> xhat = fma(hn::Sub(load(x + j, part), mean), rstd, low);
    const Vec<T> g = load(gamma + (j & gamma_mask), part);
    put<kStream>(fma(xhat, g, load(beta + (j & beta_mask), part)), y + j, part);
  });
}

/// For walk_wide.
template <bool kSum, bool kLarge, class T>
struct WideForward {
  static constexpr int Slots = WideForwardRows, Together = 1;
  const LayerNormForward<T>& a;
  double inverse;
  Shifted sums[Slots] = {};
  RowStats<T> stats[Slots] = {};

  template <int kRows>
  HWY_INLINE void sum(std::int64_t r, std::int64_t slot, Piece p) {
    sum_wide<kSum, kLarge>(a, r, p, sums[slot]);
  }
  HWY_INLINE void finish(std::int64_t r, std::int64_t slot) {
    stats[slot] = finished_row(a, r, inverse, sums[slot]);
    sums[slot] = {0, 0};
  }
  HWY_INLINE void write(std::int64_t r, std::int64_t slot, Piece p) {
    write_wide<kLarge && !kSum>(a, r, p, stats[slot]);
  }
};

template <bool kSum, bool kLarge, class T>
HWY_FLATTEN void short_rows(const LayerNormForward<T>& a, std::int64_t begin, std::int64_t end) {
  ShortForward<kSum, kLarge, T> walk{a, 1.0 / static_cast<double>(a.width)};
  walk_short<T>(begin, end, a.width, walk);
  end_stream<kLarge && !kSum>();
}
template <bool kSum, bool kLarge, class T>
HWY_FLATTEN void wide_rows(const LayerNormForward<T>& a, std::int64_t begin, std::int64_t end) {
  WideForward<kSum, kLarge, T> walk{a, 1.0 / static_cast<double>(a.width)};
  const WideCut cut{a.width, a.period, a.width, summed_by<T>(4), WideForwardPiece<T>};
  walk_wide<T>(begin, end, cut, walk);
  end_stream<kLarge && !kSum>();
}

template <class T>
void forward_rows(const LayerNormForward<T>& a, std::int64_t begin, std::int64_t end) {
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
