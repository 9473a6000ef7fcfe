#include <algorithm>
#include <cmath>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/layers/norm/layer_norm_kernel.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "layers/norm/layer_norm_kernel.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, which fixes the target they are read for.
#include <steadygrad/core/kernels/simd-inl.hpp>
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
  std::int64_t width, period;
  double eps;
  const T* x;
  detail::RowGains<T> gains;
  T* y;
  T* stats;                 // may be null
  const T* left = nullptr;  // with right: x, written here, is their sum
  const T* right = nullptr;
  T* sum = nullptr;
};

template <class T>
struct LayerNormBackward {
  std::int64_t width, period;
  const T* x;
  const T* dy;
  const T* stats;
  detail::RowGains<T> gains;
  T* dx;
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

// Corrected two-pass: x - m is exact near the mean, so the second pass repairs the rounding of the
// first. m + c/D is split into (mean, mean_lo), which makes x - mean exactly 0 for a constant row.
template <class T>
HWY_INLINE RowStats<T> row_statistics(const T* x, std::int64_t width, double sum, double eps) {
  const auto count = static_cast<double>(width);
  const T m = static_cast<T>(sum / count);
  const Vec<T> vm = fill(m);
  double c = 0, q = 0;
  const std::int64_t block = sum_block<T>();
  for (std::int64_t base = 0; base < width; base += block) {
    Sum<T> sum_c, sum_q;
    for_vectors<T>(std::min(block, width - base), [&](std::int64_t i, auto part, int k) HWY_ATTR {
      const Vec<T> d = keep<T>(hn::Sub(load(x + base + i, part), vm), part);
      sum_c.add(k, d);
      sum_q.add_product(k, d, d);
    });
    c += static_cast<double>(sum_c.total());
    q += static_cast<double>(sum_q.total());
  }
  const double low = c / count;
  const double var = (q - c * low) / count;
  const T mean = static_cast<T>(static_cast<double>(m) + low);
  const double rest = (static_cast<double>(m) - static_cast<double>(mean)) + low;
  return {mean, static_cast<T>(rest),
          static_cast<T>(1.0 / std::sqrt((var < 0 ? 0 : var) + eps))};  // a NaN stays one
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

// Normalizes row r while it sums row r + 1: reads and writes of memory overlap. The sum of the
// first row of a task goes through the same pieces, so no row's bits depend on its place.
template <bool kSum, class T>
HWY_FLATTEN void forward_rows(const LayerNormForward<T>& a, std::int64_t begin, std::int64_t end) {
  const T* x = a.x + begin * a.width;
  T* y = a.y + begin * a.width;
  double sum = 0;
  for_pieces<T>(a.width, a.period, [&](std::int64_t i, std::int64_t, std::int64_t n) HWY_ATTR {
    Sum<T> s;
    for_vectors<T>(n, [&](std::int64_t j, auto part, int k)
                          HWY_ATTR { s.add(k, input<kSum>(a, begin * a.width + i + j, part)); });
    sum += static_cast<double>(s.total());
  });
  for (std::int64_t r = begin; r < end; ++r, x += a.width, y += a.width) {
    const std::int64_t next = (r + 1 < end ? r + 1 : r) * a.width;
    const RowStats<T> stats = row_statistics(x, a.width, sum, a.eps);
    if (a.stats != nullptr) {
      a.stats[3 * r] = stats.mean;
      a.stats[3 * r + 1] = stats.mean_lo;
      a.stats[3 * r + 2] = stats.rstd;
    }
    const Vec<T> mean = fill(stats.mean), rstd = fill(stats.rstd);
    const Vec<T> low = fill(-stats.mean_lo * stats.rstd);
    sum = 0;
    for_pieces<T>(a.width, a.period, [&](std::int64_t i, std::int64_t at, std::int64_t n) HWY_ATTR {
      Sum<T> s;
      for_vectors<T>(n, [&](std::int64_t j, auto part, int k) HWY_ATTR {
        const Vec<T> xhat = fma(hn::Sub(load(x + i + j, part), mean), rstd, low);
        const Vec<T> gamma = load(a.gains.gamma + ((at + j) & a.gains.gamma_mask), part);
        const Vec<T> beta = load(a.gains.beta + ((at + j) & a.gains.beta_mask), part);
        store(fma(xhat, gamma, beta), y + i + j, part);
        s.add(k, input<kSum>(a, next + i + j, part));
      });
      sum += static_cast<double>(s.total());
    });
  }
}

// One block of rows. dx of row r and the sums of row r + 1 in one loop, the parameter gradients in
// the same pass: x and dy are read from memory once.
template <class T, bool kInput, bool kParams, bool kResidual>
HWY_FLATTEN void backward_block(const LayerNormBackward<T>& a, std::int64_t begin, std::int64_t end,
                                T* dgamma, T* dbeta) {
  const T* x = a.x + begin * a.width;
  const T* dy = a.dy + begin * a.width;
  const T* stats = a.stats + 3 * begin;
  const auto count = static_cast<double>(a.width);
  double s1 = 0, s2 = 0;
  if constexpr (kInput) {
    const Vec<T> mean = fill(stats[0]);
    for_pieces<T>(a.width, a.period, [&](std::int64_t i, std::int64_t at, std::int64_t n) HWY_ATTR {
      Sum<T> sum1, sum2;
      for_vectors<T>(n, [&](std::int64_t j, auto part, int k) HWY_ATTR {
        const Vec<T> gamma = load(a.gains.gamma + ((at + j) & a.gains.gamma_mask), part);
        const Vec<T> w = hn::Mul(load(dy + i + j, part), gamma);
        sum1.add(k, w);
        sum2.add_product(k, w, hn::Sub(load(x + i + j, part), mean));
      });
      s1 += static_cast<double>(sum1.total());
      s2 += static_cast<double>(sum2.total());
    });
  }
  for (std::int64_t r = begin; r < end; ++r, x += a.width, dy += a.width) {
    const bool last = r + 1 == end;
    const T* next_x = last ? x : x + a.width;
    const T* next_dy = last ? dy : dy + a.width;
    T* dx = kInput ? a.dx + r * a.width : nullptr;
    const Vec<T> mean = fill(stats[0]), rstd = fill(stats[2]), low = fill(-stats[1] * stats[2]);
    const Vec<T> mean_w = fill(static_cast<T>(s1 / count));
    const Vec<T> mean_wx = fill(static_cast<T>((s2 - static_cast<double>(stats[1]) * s1) *
                                               static_cast<double>(stats[2]) / count));
    if (!last) stats += 3;
    const Vec<T> next_mean = fill(stats[0]);
    s1 = 0;
    s2 = 0;
    for_pieces<T>(a.width, a.period, [&](std::int64_t i, std::int64_t at, std::int64_t n) HWY_ATTR {
      Sum<T> sum1, sum2;
      for_vectors<T>(n, [&](std::int64_t j, auto part, int k) HWY_ATTR {
        const Vec<T> u = load(dy + i + j, part);
        const Vec<T> xhat = fma(hn::Sub(load(x + i + j, part), mean), rstd, low);
        if constexpr (kParams) {
          T* dg = dgamma + at + j;
          T* db = dbeta + at + j;
          store(fma(u, xhat, load<T>(dg, part)), dg, part);
          store(hn::Add(u, load<T>(db, part)), db, part);
        }
        if constexpr (kInput) {
          const Vec<T> gamma = load(a.gains.gamma + ((at + j) & a.gains.gamma_mask), part);
          const Vec<T> p = fnma(xhat, mean_wx, hn::Sub(hn::Mul(u, gamma), mean_w));
          Vec<T> d = hn::Mul(rstd, p);
          if constexpr (kResidual) {
            d = hn::Add(load(a.residual + r * a.width + i + j, part), d);
          }
          store(d, dx + i + j, part);
          const Vec<T> w = hn::Mul(load(next_dy + i + j, part), gamma);
          sum1.add(k, w);
          sum2.add_product(k, w, hn::Sub(load(next_x + i + j, part), next_mean));
        }
      });
      if constexpr (kInput) {
        s1 += static_cast<double>(sum1.total());
        s2 += static_cast<double>(sum2.total());
      }
    });
  }
}

template <class T>
void backward_rows(const LayerNormBackward<T>& a, std::int64_t begin, std::int64_t end, T* dgamma,
                   T* dbeta) {
  if (a.dx == nullptr) {
    backward_block<T, false, true, false>(a, begin, end, dgamma, dbeta);
  } else if (dgamma == nullptr && a.residual == nullptr) {
    backward_block<T, true, false, false>(a, begin, end, dgamma, dbeta);
  } else if (dgamma == nullptr) {
    backward_block<T, true, false, true>(a, begin, end, dgamma, dbeta);
  } else if (a.residual == nullptr) {
    backward_block<T, true, true, false>(a, begin, end, dgamma, dbeta);
  } else {
    backward_block<T, true, true, true>(a, begin, end, dgamma, dbeta);
  }
}

template <class T>
void forward_task(const LayerNormForward<T>& a, std::int64_t begin, std::int64_t end) {
  if (a.sum == nullptr) {
    forward_rows<false>(a, begin, end);
  } else {
    forward_rows<true>(a, begin, end);
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

}  // namespace

template <class T>
void layer_norm_forward(const RowShape& shape, double eps, std::span<const T> x,
                        std::span<const T> gamma, std::span<const T> beta, std::span<T> y,
                        std::span<T> stats) {
  const char* op = "layer_norm_forward";
  RowPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "beta", beta.size(), shape.affine, true);
  check_span(op, "y", y.size(), shape.elements(), false);
  check_span(op, "stats", stats.size(), 3 * shape.rows, true);
  const RowPlan plan(shape);
  const RepeatedGains<T> gains(shape, gamma, beta);
  const LayerNormForward<T> work{shape.width,  plan.period, eps,         x.data(),
                                 gains.view(), y.data(),    stats.data()};
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
  const LayerNormForward<T> work{shape.width, plan.period,  eps,         sum.data(),   gains.view(),
                                 y.data(),    stats.data(), left.data(), right.data(), sum.data()};
  const auto worker = forward_worker<T>();
  parallel_for(shape.rows, plan.task_rows,
               [&](std::int64_t begin, std::int64_t end) { worker(work, begin, end); });
}

std::int64_t layer_norm_workspace(const RowShape& shape) { return RowPlan(shape).partials(2); }

template <class T>
void layer_norm_backward(const RowShape& shape, std::span<const T> x, std::span<const T> dy,
                         std::span<const T> gamma, std::span<const T> stats, std::span<T> dx,
                         std::span<T> dgamma, std::span<T> dbeta, std::span<T> workspace,
                         std::span<const T> residual) {
  const char* op = "layer_norm_backward";
  RowPlan::check(op, shape);
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
  const LayerNormBackward<T> work{shape.width,  plan.period,  x.data(),  dy.data(),
                                  stats.data(), gains.view(), dx.data(), residual.data()};
  const auto worker = backward_worker<T>();
  parallel_for(plan.blocks, plan.task_blocks, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      T* partial = params ? workspace.data() + block * 2 * plan.period : nullptr;
      if (params) std::fill_n(partial, 2 * plan.period, T(0));
      worker(work, block * plan.block_rows, std::min(shape.rows, (block + 1) * plan.block_rows),
             partial, params ? partial + plan.period : nullptr);
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
