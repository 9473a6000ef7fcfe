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
  T* stats;  // may be null
  bool stream;
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
  bool stream;
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

/// Sums of x - m and its square.
struct Deviations {
  double c, q;
};

template <class T>
HWY_INLINE Deviations deviations(const T* x, std::int64_t width, T m) {
  const Vec<T> vm = fill(m);
  Deviations sums{0, 0};
  const std::int64_t block = sum_block<T>();
  for (std::int64_t base = 0; base < width; base += block) {
    Sum<T> sum_c, sum_q;
    for_vectors<T>(std::min(block, width - base), [&](std::int64_t i, auto part, int k) HWY_ATTR {
      const Vec<T> d = keep<T>(hn::Sub(load(x + base + i, part), vm), part);
      sum_c.add(k, d);
      sum_q.add_product(k, d, d);
    });
    sums.c += static_cast<double>(sum_c.total());
    sums.q += static_cast<double>(sum_q.total());
  }
  return sums;
}

// Corrected two-pass: x - m is exact near the mean, so the second pass repairs the rounding of the
// first. m + c/D is split into (mean, mean_lo), which makes x - mean exactly 0 for a constant row.
template <class T>
HWY_INLINE void block_statistics(const T* x, std::int64_t width, std::int64_t rows, double eps,
                                 const double* sums, RowStats<T>* stats) {
  const auto count = static_cast<double>(width);
  T m[MostTogether];
  Deviations d[MostTogether];
  for (std::int64_t k = 0; k < rows; ++k) m[k] = static_cast<T>(sums[k] / count);
  for (std::int64_t k = 0; k < rows; ++k) d[k] = deviations(x + k * width, width, m[k]);
  for (std::int64_t k = 0; k < rows; ++k) {
    const double low = d[k].c / count;
    const double var = (d[k].q - d[k].c * low) / count;
    const T mean = static_cast<T>(static_cast<double>(m[k]) + low);
    const double rest = (static_cast<double>(m[k]) - static_cast<double>(mean)) + low;
    stats[k] = {mean, static_cast<T>(rest),
                static_cast<T>(1.0 / std::sqrt((var < 0 ? 0 : var) + eps))};  // a NaN stays one
  }
  for (std::int64_t k = 0; sizeof(T) == 4 && k < rows; ++k) {
    if (d[k].q <= std::numeric_limits<double>::max()) continue;
    stats[k] = wide_statistics(x + k * width, width, eps);
  }
}

// Element `at` of x, made first where it is a sum.
template <bool kSum, class T>
HWY_INLINE Vec<T> input(const LayerNormForward<T>& a, std::int64_t at, auto part) {
  if constexpr (kSum) {
    const Vec<T> v = hn::Add(load(a.left + at, part), load(a.right + at, part));
    store(v, a.sum + at, part);
    return v;
  } else {
    return load(a.x + at, part);
  }
}

// The sum of a row, through the same pieces as normalized_row: no row's bits depend on its place.
template <bool kSum, class T>
HWY_INLINE double row_sum(const LayerNormForward<T>& a, std::int64_t r) {
  double sum = 0;
  for_pieces<T>(a.width, a.period, [&](std::int64_t i, std::int64_t, std::int64_t n) HWY_ATTR {
    Sum<T> s;
    for_vectors<T>(n, [&](std::int64_t j, auto part, int k)
                          HWY_ATTR { s.add(k, input<kSum>(a, r * a.width + i + j, part)); });
    sum += static_cast<double>(s.total());
  });
  return sum;
}

// Normalizes row r and returns the sum of row `next`: reads and writes of memory overlap.
template <bool kSum, bool kStream, class T>
HWY_INLINE double normalized_row(const LayerNormForward<T>& a, std::int64_t r, std::int64_t next,
                                 const RowStats<T>& stats) {
  const T* x = a.x + r * a.width;
  T* y = a.y + r * a.width;
  const std::int64_t first = first_gain(a, r);
  const Vec<T> mean = fill(stats.mean), rstd = fill(stats.rstd);
  const Vec<T> low = fill(-stats.mean_lo * stats.rstd);
  double sum = 0;
  for_pieces<T>(a.width, a.period, [&](std::int64_t i, std::int64_t at, std::int64_t n) HWY_ATTR {
    const std::int64_t from = first + at;
    Sum<T> s;
    for_vectors<T>(n, [&](std::int64_t j, auto part, int k) HWY_ATTR {
      const Vec<T> xhat = fma(hn::Sub(load(x + i + j, part), mean), rstd, low);
      const Vec<T> gamma = load(a.gains.gamma + ((from + j) & a.gains.gamma_mask), part);
      const Vec<T> beta = load(a.gains.beta + ((from + j) & a.gains.beta_mask), part);
      put<kStream>(fma(xhat, gamma, beta), y + i + j, part);
      s.add(k, input<kSum>(a, next * a.width + i + j, part));
    });
    sum += static_cast<double>(s.total());
  });
  return sum;
}

template <bool kSum, bool kStream, class T>
HWY_FLATTEN void forward_rows(const LayerNormForward<T>& a, std::int64_t begin, std::int64_t end) {
  const std::int64_t together = rows_together<T>(a.width);
  double sums[MostTogether] = {};
  RowStats<T> stats[MostTogether];
  for (std::int64_t r = begin; r < std::min(begin + together, end); ++r) {
    sums[r - begin] = row_sum<kSum>(a, r);
  }
  for (std::int64_t first = begin; first < end; first += together) {
    const std::int64_t rows = std::min(together, end - first);
    block_statistics(a.x + first * a.width, a.width, rows, a.eps, sums, stats);
    for (std::int64_t k = 0; k < rows; ++k) {
      const std::int64_t r = first + k;
      const std::int64_t next = r + together < end ? r + together : r;
      sums[k] = normalized_row<kSum, kStream>(a, r, next, stats[k]);
      if (a.stats == nullptr) continue;
      a.stats[3 * r] = stats[k].mean;
      a.stats[3 * r + 1] = stats[k].mean_lo;
      a.stats[3 * r + 2] = stats[k].rstd;
    }
  }
  end_stream<kStream>();
}

/// Sums over a row of w and of w * (x - mean).
struct WeightedSums {
  double s1, s2;
};

template <class T>
HWY_INLINE WeightedSums weighted_sums(const LayerNormBackward<T>& a, std::int64_t r) {
  const T* x = a.x + r * a.width;
  const T* dy = a.dy + r * a.width;
  const std::int64_t first = first_gain(a, r);
  const Vec<T> mean = fill(a.stats[3 * r]);
  WeightedSums sums{0, 0};
  for_pieces<T>(a.width, a.period, [&](std::int64_t i, std::int64_t at, std::int64_t n) HWY_ATTR {
    const std::int64_t from = first + at;
    Sum<T> sum1, sum2;
    for_vectors<T>(n, [&](std::int64_t j, auto part, int k) HWY_ATTR {
      const Vec<T> gamma = load(a.gains.gamma + ((from + j) & a.gains.gamma_mask), part);
      const Vec<T> w = hn::Mul(load(dy + i + j, part), gamma);
      sum1.add(k, w);
      sum2.add_product(k, w, hn::Sub(load(x + i + j, part), mean));
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

/// What backward_row does: dx, parameter gradients, a residual, streamed dx.
template <bool input, bool params, bool residual, bool stream>
struct Ways {
  static constexpr bool Input = input, Params = params, Residual = residual, Stream = stream;
};

// dx of row r, its parameter gradients, and the sums of row `next`, in one loop.
template <class W, class T>
HWY_INLINE WeightedSums backward_row(const LayerNormBackward<T>& a, std::int64_t r,
                                     std::int64_t next, const RowMeans<T>& means, T* dgamma,
                                     T* dbeta) {
  const T* x = a.x + r * a.width;
  const T* dy = a.dy + r * a.width;
  const T* next_x = a.x + next * a.width;
  const T* next_dy = a.dy + next * a.width;
  const T* stats = a.stats + 3 * r;
  const std::int64_t first = first_gain(a, r), next_first = first_gain(a, next);
  const Vec<T> mean = fill(stats[0]), rstd = fill(stats[2]), low = fill(-stats[1] * stats[2]);
  const Vec<T> mean_w = fill(means.w), mean_wx = fill(means.wx);
  const Vec<T> next_mean = fill(a.stats[3 * next]);
  WeightedSums sums{0, 0};
  for_pieces<T>(a.width, a.period, [&](std::int64_t i, std::int64_t at, std::int64_t n) HWY_ATTR {
    const std::int64_t from = first + at, next_from = next_first + at;
    Sum<T> sum1, sum2;
    for_vectors<T>(n, [&](std::int64_t j, auto part, int k) HWY_ATTR {
      const Vec<T> u = load(dy + i + j, part);
      const Vec<T> xhat = fma(hn::Sub(load(x + i + j, part), mean), rstd, low);
      if constexpr (W::Params) {
        T* dg = dgamma + from + j;
        T* db = dbeta + from + j;
        store(fma(u, xhat, load<T>(dg, part)), dg, part);
        store(hn::Add(u, load<T>(db, part)), db, part);
      }
      if constexpr (W::Input) {
        const Vec<T> gamma = load(a.gains.gamma + ((from + j) & a.gains.gamma_mask), part);
        const Vec<T> p = fnma(xhat, mean_wx, hn::Sub(hn::Mul(u, gamma), mean_w));
        Vec<T> d = hn::Mul(rstd, p);
        if constexpr (W::Residual) {
          d = hn::Add(load(a.residual + r * a.width + i + j, part), d);
        }
        put<W::Stream>(d, a.dx + r * a.width + i + j, part);
        const Vec<T> g = load(a.gains.gamma + ((next_from + j) & a.gains.gamma_mask), part);
        const Vec<T> w = hn::Mul(load(next_dy + i + j, part), g);
        sum1.add(k, w);
        sum2.add_product(k, w, hn::Sub(load(next_x + i + j, part), next_mean));
      }
    });
    if constexpr (W::Input) {
      sums.s1 += static_cast<double>(sum1.total());
      sums.s2 += static_cast<double>(sum2.total());
    }
  });
  return sums;
}

// One block of rows; x and dy are read from memory once.
template <class W, class T>
HWY_FLATTEN void backward_block(const LayerNormBackward<T>& a, std::int64_t begin, std::int64_t end,
                                T* dgamma, T* dbeta) {
  const std::int64_t together = rows_together<T>(2 * a.width);
  WeightedSums sums[MostTogether] = {};
  RowMeans<T> means[MostTogether] = {};
  for (std::int64_t r = begin; W::Input && r < std::min(begin + together, end); ++r) {
    sums[r - begin] = weighted_sums(a, r);
  }
  for (std::int64_t first = begin; first < end; first += together) {
    const std::int64_t rows = std::min(together, end - first);
    for (std::int64_t k = 0; k < rows; ++k) means[k] = row_means(a, first + k, sums[k]);
    for (std::int64_t k = 0; k < rows; ++k) {
      const std::int64_t r = first + k;
      const std::int64_t next = r + together < end ? r + together : r;
      sums[k] = backward_row<W>(a, r, next, means[k], dgamma, dbeta);
    }
  }
  end_stream<W::Stream>();
}

template <class T>
void backward_rows(const LayerNormBackward<T>& a, std::int64_t begin, std::int64_t end, T* dgamma,
                   T* dbeta) {
  const auto run = [&](auto ways) { backward_block<decltype(ways)>(a, begin, end, dgamma, dbeta); };
  const bool params = dgamma != nullptr;
  if (a.dx == nullptr) return run(Ways<false, true, false, false>{});
  if (a.residual != nullptr) {
    return params ? run(Ways<true, true, true, false>{}) : run(Ways<true, false, true, false>{});
  }
  if (a.stream) {
    return params ? run(Ways<true, true, false, true>{}) : run(Ways<true, false, false, true>{});
  }
  params ? run(Ways<true, true, false, false>{}) : run(Ways<true, false, false, false>{});
}

template <class T>
void forward_task(const LayerNormForward<T>& a, std::int64_t begin, std::int64_t end) {
  if (a.sum != nullptr) {
    forward_rows<true, false>(a, begin, end);
  } else if (a.stream) {
    forward_rows<false, true>(a, begin, end);
  } else {
    forward_rows<false, false>(a, begin, end);
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
  const LayerNormForward<T> work{
      shape.width, plan.period,  1,     eps,         sum.data(),   gains.view(),
      y.data(),    stats.data(), false, left.data(), right.data(), sum.data()};
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
