#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/stream.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/layers/norm/layer_norm_kernel.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "layers/norm/layer_norm_kernel.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, which fixes the target they are read for.
#include <steadygrad/core/kernels/stream-inl.hpp>
#include <steadygrad/layers/norm/row_walk-inl.hpp>

// Derivation, one row of D elements; m(.) is the mean over the row, u = dy, w = gamma * u:
//   xhat = (x - mean) * r,  r = (var + eps)^(-1/2),  y = gamma * xhat + beta.
// From d mean = m(dx) and d r = -r^2 m(xhat dx) follows d xhat = r * P(dx) with
//   P(v) = v - m(v) - xhat * m(v * xhat),
// symmetric, hence
//   dx = r * P(w),   dgamma = sum over rows of u * xhat,   dbeta = sum over rows of u.
// Its derivative: layer_norm_double_backward.cpp.

#ifndef STEADY_LAYERS_NORM_LAYER_NORM_WORKERS
#define STEADY_LAYERS_NORM_LAYER_NORM_WORKERS
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

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

template <class T>
struct RowStats {
  T mean, mean_lo, rstd;
};

/// Where in the gains row r begins: they repeat after `cycle` rows.
template <class Work>
HWY_INLINE std::int64_t first_gain(const Work& a, std::int64_t r) {
  return a.cycle == 1 ? 0 : r % a.cycle * a.width;
}

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
// a few standard deviations of the mean. Where it does not, the row, which a cache still holds, is
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
  constexpr double Far = 0.9375;  // c^2/D over q where K is four standard deviations away
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

/// A row of x, or of the sum that becomes it. Pointers by value: through a reference to the work
/// they would be read again after every store.
template <bool kSum, class T>
struct InputRow {
  const T *x, *left, *right;
  T* sum;

  HWY_INLINE InputRow(const LayerNormForward<T>& a, std::int64_t r)
      : x(a.x + r * a.width), left(nullptr), right(nullptr), sum(nullptr) {
    if constexpr (kSum) {
      left = a.left + r * a.width;
      right = a.right + r * a.width;
      sum = a.sum + r * a.width;
    }
  }
  [[nodiscard]] HWY_INLINE Vec<T> pivot() const {
    return fill(kSum ? static_cast<T>(left[0] + right[0]) : x[0]);
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

// The sums of a row, through the same pieces as normalized_row: no row's bits depend on its place.
template <bool kSum, bool kLarge, class T>
HWY_INLINE Shifted row_sums(const LayerNormForward<T>& a, std::int64_t r) {
  Shifted sums{0, 0};
  const InputRow<kSum, T> x(a, r);
  const Vec<T> pivot = x.pivot();
  for_pieces<T>(a.width, a.period, [&](Piece p) HWY_ATTR {
    Sum<T> c, q;
    for_vectors<T>(p.n, [&](std::int64_t j, auto part, int k) HWY_ATTR {
      if (kLarge) x.fetch(p.i + j + Ahead);
      const Vec<T> d = keep<T>(hn::Sub(x.at(p.i + j, part), pivot), part);
      c.add(k, d);
      q.add_product(k, d, d);
    });
    sums.c += static_cast<double>(c.total());
    sums.q += static_cast<double>(q.total());
  });
  return sums;
}

// Normalizes a piece of row r and adds that of row `next` to its sums: reads and writes of memory
// overlap.
template <bool kSum, bool kLarge, class T>
HWY_INLINE void normalized_piece(const LayerNormForward<T>& a, std::int64_t r, std::int64_t next,
                                 const RowStats<T>& stats, Piece p, std::int64_t ahead,
                                 Shifted& sums) {
  const T* x = a.x + r * a.width + p.i;
  T* y = a.y + r * a.width + p.i;
  const InputRow<kSum, T> next_x(a, next);
  const std::int64_t gamma_mask = a.gains.gamma_mask, beta_mask = a.gains.beta_mask;
  const T* gamma = a.gains.gamma + ((first_gain(a, r) + p.at) & gamma_mask);
  const T* beta = a.gains.beta + ((first_gain(a, r) + p.at) & beta_mask);
  const Vec<T> mean = fill(stats.mean), rstd = fill(stats.rstd);
  const Vec<T> low = fill(-stats.mean_lo * stats.rstd);
  const Vec<T> pivot = next_x.pivot();
  Sum<T> c, q;
  for_vectors<T>(p.n, [&](std::int64_t j, auto part, int k) HWY_ATTR {
    const Vec<T> xhat = fma(hn::Sub(load(x + j, part), mean), rstd, low);
    const Vec<T> g = load(gamma + (j & gamma_mask), part);
    put<kLarge && !kSum>(fma(xhat, g, load(beta + (j & beta_mask), part)), y + j, part);
    if (kLarge) next_x.fetch(p.i + j + ahead);
    const Vec<T> d = keep<T>(hn::Sub(next_x.at(p.i + j, part), pivot), part);
    c.add(k, d);
    q.add_product(k, d, d);
  });
  sums.c += static_cast<double>(c.total());
  sums.q += static_cast<double>(q.total());
}

template <bool kSum, bool kLarge, class T>
HWY_FLATTEN void forward_rows(const LayerNormForward<T>& a, std::int64_t begin, std::int64_t end) {
  const std::int64_t together = rows_in_turn<T>(a.width, a.width);
  const double inverse = 1.0 / static_cast<double>(a.width);
  Shifted sums[MostTogether] = {};
  RowStats<T> stats[MostTogether];
  for (std::int64_t r = begin; r < std::min(begin + together, end); ++r) {
    sums[r - begin] = row_sums<kSum, kLarge>(a, r);
  }
  for (std::int64_t first = begin; first < end; first += together) {
    const std::int64_t rows = std::min(together, end - first);
    for (std::int64_t k = 0; k < rows; ++k) {
      stats[k] = row_statistics(a.x + (first + k) * a.width, a.width, inverse, a.eps, sums[k]);
      sums[k] = {0, 0};
    }
    for_pieces<T>(a.width, a.period, [&](Piece p) HWY_ATTR {
      for (std::int64_t k = 0; k < rows; ++k) {
        const std::int64_t r = first + k;
        const std::int64_t next = r + together < end ? r + together : r;
        normalized_piece<kSum, kLarge>(a, r, next, stats[k], p, ahead_of(p, k, rows, a.width),
                                       sums[k]);
      }
    });
    for (std::int64_t k = 0; k < rows && a.stats != nullptr; ++k) {
      T* s = a.stats + 3 * (first + k);
      s[0] = stats[k].mean;
      s[1] = stats[k].mean_lo;
      s[2] = stats[k].rstd;
    }
  }
  end_stream<kLarge && !kSum>();
}

/// Sums over a row of w and of w * (x - mean).
struct WeightedSums {
  double s1, s2;
};

/// What backward_row does: dx, parameter gradients, a residual; rows fetched ahead, streamed dx.
template <bool input, bool params, bool residual, bool large>
struct Ways {
  static constexpr bool Input = input, Params = params, Residual = residual, Ahead = large,
                        Stream = large && !residual;
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
  for_vectors<T>(p.n, [&](std::int64_t j, auto part, int k) HWY_ATTR {
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
  const auto run = [&](auto ways) { backward_block<decltype(ways)>(a, begin, end, dgamma, dbeta); };
  const bool params = dgamma != nullptr;
  if (a.dx == nullptr) return run(Ways<false, true, false, false>{});
  if (a.residual != nullptr && a.large) {
    return params ? run(Ways<true, true, true, true>{}) : run(Ways<true, false, true, true>{});
  }
  if (a.residual != nullptr) {
    return params ? run(Ways<true, true, true, false>{}) : run(Ways<true, false, true, false>{});
  }
  if (a.large) {
    return params ? run(Ways<true, true, false, true>{}) : run(Ways<true, false, false, true>{});
  }
  params ? run(Ways<true, true, false, false>{}) : run(Ways<true, false, false, false>{});
}

template <class T>
void forward_task(const LayerNormForward<T>& a, std::int64_t begin, std::int64_t end) {
  if (a.sum != nullptr) {
    a.large ? forward_rows<true, true>(a, begin, end) : forward_rows<true, false>(a, begin, end);
  } else {
    a.large ? forward_rows<false, true>(a, begin, end) : forward_rows<false, false>(a, begin, end);
  }
}

}  // namespace

void layer_norm_forward_f32(const LayerNormForward<float>& a, std::int64_t begin,
                            std::int64_t end) {
  forward_task(a, begin, end);
}
void layer_norm_forward_f64(const LayerNormForward<double>& a, std::int64_t begin,
                            std::int64_t end) {
  forward_task(a, begin, end);
}
void layer_norm_backward_f32(const LayerNormBackward<float>& a, std::int64_t begin,
                             std::int64_t end, float* dgamma, float* dbeta) {
  backward_rows(a, begin, end, dgamma, dbeta);
}
void layer_norm_backward_f64(const LayerNormBackward<double>& a, std::int64_t begin,
                             std::int64_t end, double* dgamma, double* dbeta) {
  backward_rows(a, begin, end, dgamma, dbeta);
}

}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace steady {

using detail::check_span;
using detail::RepeatedGains;
using detail::RowPlan;

namespace {

HWY_EXPORT(layer_norm_forward_f32);
HWY_EXPORT(layer_norm_forward_f64);
HWY_EXPORT(layer_norm_backward_f32);
HWY_EXPORT(layer_norm_backward_f64);

template <class T>
auto forward_worker() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(layer_norm_forward_f32);
  } else {
    return HWY_DYNAMIC_DISPATCH(layer_norm_forward_f64);
  }
}

template <class T>
auto backward_worker() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(layer_norm_backward_f32);
  } else {
    return HWY_DYNAMIC_DISPATCH(layer_norm_backward_f64);
  }
}

void check(const char* op, const RowShape& shape) {
  if (shape.width >= 1 && shape.affine > shape.width && shape.affine % shape.width == 0) return;
  RowPlan::check(op, shape);
}

/// Rows after which the gains repeat.
std::int64_t gain_cycle(const RowShape& shape) {
  return std::max<std::int64_t>(shape.affine / shape.width, 1);
}

template <class T>
bool streams(const RowShape& shape, const RowPlan& plan, std::int64_t arrays, const T* out) {
  constexpr auto Size = static_cast<std::int64_t>(sizeof(T));
  return kernels::streams(arrays * shape.elements() * Size, out,
                          std::gcd(shape.width, plan.period) * Size);
}

}  // namespace

template <class T>
void layer_norm_forward(const RowShape& shape, double eps, std::span<const T> x,
                        std::span<const T> gamma, std::span<const T> beta, std::span<T> y,
                        std::span<T> stats) {
  const char* op = "layer_norm_forward";
  check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "beta", beta.size(), shape.affine, true);
  check_span(op, "y", y.size(), shape.elements(), false);
  check_span(op, "stats", stats.size(), 3 * shape.rows, true);
  const RowPlan plan(shape);
  const RepeatedGains<T> gains(shape, gamma, beta);
  const LayerNormForward<T> work{shape.width, plan.period,  gain_cycle(shape),
                                 eps,         x.data(),     gains.view(),
                                 y.data(),    stats.data(), streams(shape, plan, 2, y.data())};
  const auto worker = forward_worker<T>();
  parallel_for(shape.rows, plan.task_rows,
               [&](std::int64_t begin, std::int64_t end) { worker(work, begin, end); });
}

template <class T>
void add_layer_norm_forward(const RowShape& shape, double eps, std::span<const T> left,
                            std::span<const T> right, std::span<const T> gamma,
                            std::span<const T> beta, std::span<T> sum, std::span<T> y,
                            std::span<T> stats) {
  const char* op = "add_layer_norm_forward";
  RowPlan::check(op, shape);
  check_span(op, "left", left.size(), shape.elements(), false);
  check_span(op, "right", right.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "beta", beta.size(), shape.affine, true);
  check_span(op, "sum", sum.size(), shape.elements(), false);
  check_span(op, "y", y.size(), shape.elements(), false);
  check_span(op, "stats", stats.size(), 3 * shape.rows, true);
  const RowPlan plan(shape);
  const RepeatedGains<T> gains(shape, gamma, beta);
  const LayerNormForward<T> work{shape.width, plan.period,  1,
                                 eps,         sum.data(),   gains.view(),
                                 y.data(),    stats.data(), streams(shape, plan, 4, y.data()),
                                 left.data(), right.data(), sum.data()};
  const auto worker = forward_worker<T>();
  parallel_for(shape.rows, plan.task_rows,
               [&](std::int64_t begin, std::int64_t end) { worker(work, begin, end); });
}

std::int64_t layer_norm_workspace(const RowShape& shape) {
  const RowPlan plan(shape);
  return plan.blocks * 2 * std::max(plan.period, shape.affine);
}

template <class T>
void layer_norm_backward(const RowShape& shape, std::span<const T> x, std::span<const T> dy,
                         std::span<const T> gamma, std::span<const T> stats, std::span<T> dx,
                         std::span<T> dgamma, std::span<T> dbeta, std::span<T> workspace,
                         std::span<const T> residual) {
  const char* op = "layer_norm_backward";
  check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "dy", dy.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "stats", stats.size(), 3 * shape.rows, false);
  check_span(op, "dx", dx.size(), shape.elements(), true);
  check_span(op, "dgamma", dgamma.size(), shape.affine, true);
  check_span(op, "dbeta", dbeta.size(), shape.affine, true);
  check_span(op, "workspace", workspace.size(), layer_norm_workspace(shape), false);
  check_span(op, "residual", residual.size(), shape.elements(), true);
  const bool params = !dgamma.empty() || !dbeta.empty();
  if (dx.empty() && !params) return;
  const RowPlan plan(shape);
  const RepeatedGains<T> gains(shape, gamma, {});
  const std::int64_t columns = std::max(plan.period, shape.affine);
  const LayerNormBackward<T> work{shape.width,    plan.period, gain_cycle(shape),
                                  x.data(),       dy.data(),   stats.data(),
                                  gains.view(),   dx.data(),   streams(shape, plan, 3, dx.data()),
                                  residual.data()};
  const auto worker = backward_worker<T>();
  parallel_for(plan.blocks, plan.task_blocks, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      T* partial = params ? workspace.data() + block * 2 * columns : nullptr;
      if (params) std::fill_n(partial, 2 * columns, T(0));
      worker(work, block * plan.block_rows, std::min(shape.rows, (block + 1) * plan.block_rows),
             partial, params ? partial + columns : nullptr);
    }
  });
  if (!dgamma.empty()) detail::merge_partials(shape, workspace.data(), 2, 0, dgamma);
  if (!dbeta.empty()) detail::merge_partials(shape, workspace.data(), 2, 1, dbeta);
}

template void layer_norm_forward(const RowShape&, double, std::span<const float>,
                                 std::span<const float>, std::span<const float>, std::span<float>,
                                 std::span<float>);
template void layer_norm_forward(const RowShape&, double, std::span<const double>,
                                 std::span<const double>, std::span<const double>,
                                 std::span<double>, std::span<double>);
template void add_layer_norm_forward(const RowShape&, double, std::span<const float>,
                                     std::span<const float>, std::span<const float>,
                                     std::span<const float>, std::span<float>, std::span<float>,
                                     std::span<float>);
template void add_layer_norm_forward(const RowShape&, double, std::span<const double>,
                                     std::span<const double>, std::span<const double>,
                                     std::span<const double>, std::span<double>, std::span<double>,
                                     std::span<double>);
template void layer_norm_backward(const RowShape&, std::span<const float>, std::span<const float>,
                                  std::span<const float>, std::span<const float>, std::span<float>,
                                  std::span<float>, std::span<float>, std::span<float>,
                                  std::span<const float>);
template void layer_norm_backward(const RowShape&, std::span<const double>, std::span<const double>,
                                  std::span<const double>, std::span<const double>,
                                  std::span<double>, std::span<double>, std::span<double>,
                                  std::span<double>, std::span<const double>);

}  // namespace steady
#endif
