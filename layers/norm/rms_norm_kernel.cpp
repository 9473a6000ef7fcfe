#include <algorithm>
#include <cmath>
#include <limits>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/layers/norm/rms_norm_kernel.hpp>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "layers/norm/rms_norm_kernel.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, which fixes the target they are read for.
#include <steadygrad/layers/norm/row_walk-inl.hpp>
#include <steadygrad/layers/norm/row_work-inl.hpp>

// Derivation, one row of D elements; m(.) is the mean over the row, u = dy, g the gain, w = g * u:
//   xhat = x * r,  r = (m(x^2) + eps)^(-1/2),  y = g * xhat.
// From d r = -r^2 m(xhat dx) follows d xhat = r * P(dx) with
//   P(v) = v - xhat * m(v * xhat),
// symmetric, hence
//   dx = r * P(w),   dgamma = sum over rows of u * xhat.
// The gain 1 + gamma has the derivative of gamma.
// Its derivative: rms_norm_double_backward.cpp.

#ifndef STEADY_LAYERS_NORM_RMS_NORM_WORK
#define STEADY_LAYERS_NORM_RMS_NORM_WORK
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
  double sums[MostTogether] = {};
  T scales[MostTogether] = {};

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
  static constexpr int Rows = WideForwardRows;
  const RmsNormWork<T>& a;
  double inverse;
  double sums[Rows] = {};
  T scales[Rows] = {};

  template <int kRows>
  HWY_INLINE void sum(std::int64_t r, std::int64_t slot, Piece p) {
    for (int k = 0; k < kRows; ++k) {
      const InputRow<kSum, T> x(a, r + k);
      Sum<T> s;
      for_vectors<T>(p.n, [&](std::int64_t j, auto part, int v) HWY_ATTR {
        const Vec<T> value = x.at(p.i + j, part);
        s.add_product(v, value, value);
      });
      sums[slot + k] += static_cast<double>(s.total());
    }
  }
  HWY_INLINE void finish(std::int64_t r, std::int64_t slot) {
    scales[slot] = finished_row(a, r, inverse, sums[slot]);
    sums[slot] = 0;
  }
  HWY_INLINE void write(std::int64_t r, std::int64_t slot, Piece p) {
    const T* x = a.x + r * a.width + p.i;
    T* y = a.out + r * a.width + p.i;
    const InputRow<kSum, T> ahead(a, r + WideForwardRows);
    const Gains<T> gains(a, p.at);
    const Vec<T> rstd = fill(scales[slot]);
    for_vectors<T>(p.n, [=](std::int64_t j, auto part, int) HWY_ATTR {
      if (kLarge) ahead.fetch(p.i + j);
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
  walk_wide<T>(begin, end, a.width, a.period, 4 * LaneTerms * lanes<T>(), a.period, true, walk);
  end_stream<kLarge && !kSum>();
}
template <bool kSum, bool kLarge, class T>
void forward_rows(const RmsNormWork<T>& a, std::int64_t begin, std::int64_t end) {
  is_short<T>(a.width, a.period) ? short_rows<kSum, kLarge>(a, begin, end)
                                 : wide_rows<kSum, kLarge>(a, begin, end);
}

// The sum over a row of w * x.
template <class W, class T>
HWY_INLINE double weighted_sum(const RmsNormWork<T>& a, std::int64_t r) {
  const T *x = a.x + r * a.width, *dy = a.dy + r * a.width;
  const Gains<T> gains(a, 0);
  Sum<T> s;
  for_vectors<T>(a.width, [&](std::int64_t j, auto part, int k) HWY_ATTR {
    if constexpr (W::Ahead) {
      hwy::Prefetch(x + j + Ahead);
      hwy::Prefetch(dy + j + Ahead);
    }
    s.add_product(k, hn::Mul(load(dy + j, part), gains.at(j, part)), load(x + j, part));
  });
  return static_cast<double>(s.total());
}

// dx of row r and its parameter gradient; returns the sum w * x of row `next`. In one loop.
template <class W, class T>
HWY_INLINE double backward_row(const RmsNormWork<T>& a, std::int64_t r, std::int64_t next,
                               T mean_of_wx, T* dgamma) {
  const std::int64_t here = r * a.width, there = next * a.width;
  const T *x = a.x + here, *dy = a.dy + here, *next_x = a.x + there, *next_dy = a.dy + there;
  const T* residual = W::Residual ? a.residual + here : nullptr;
  T* dx = W::Input ? a.out + here : nullptr;
  T* dg = W::Params ? dgamma : nullptr;
  const Gains<T> gains(a, 0);
  const Vec<T> rstd = fill(a.stats[r]);
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
      s.add_product(k, hn::Mul(load(next_dy + j, part), g), load(next_x + j, part));
    }
  });
  return W::Input ? static_cast<double>(s.total()) : 0;
}

/// m(w * xhat) of row r from its sum of w * x.
template <class T>
HWY_INLINE T row_mean(const RmsNormWork<T>& a, std::int64_t r, double inverse, double sum) {
  return static_cast<T>(sum * static_cast<double>(a.stats[r]) * inverse);
}

/// For walk_short.
template <class W, class T>
struct ShortBackward {
  const RmsNormWork<T>& a;
  T* dgamma;
  double inverse;
  double sums[MostTogether] = {};
  T means[MostTogether] = {};

  HWY_INLINE void sum(std::int64_t r, std::int64_t slot) {
    if constexpr (W::Input) sums[slot] = weighted_sum<W>(a, r);
  }
  HWY_INLINE void finish(std::int64_t r, std::int64_t slot) {
    means[slot] = row_mean(a, r, inverse, sums[slot]);
  }
  HWY_INLINE void write(std::int64_t r, std::int64_t slot, std::int64_t next,
                        std::int64_t next_slot) {
    sums[next_slot] = backward_row<W>(a, r, next, means[slot], dgamma);
  }
};

/// Adds a piece of kRows rows from r on to their sums of w * x and to the parameter gradient.
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
      if constexpr (W::Params) {
        const Vec<T> xhat = hn::Mul(v, rstd[k]);
        u_xhat[k] = k % 2 == 0 ? hn::Mul(u, xhat) : fma(u, xhat, u_xhat[k - 1]);
      }
      if constexpr (W::Input) sum_wx[k] = fma(hn::Mul(u, g), v, sum_wx[k]);
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
  const std::int64_t here = r * a.width + p.i, ahead = WideBackwardRows * a.width;
  const T *x = a.x + here, *dy = a.dy + here;
  const T* residual = W::Residual ? a.residual + here : nullptr;
  T* dx = a.out + here;
  const Gains<T> gains(a, p.at);
  const Vec<T> rstd = fill(a.stats[r]), mean_wx = fill(mean_of_wx);
  for_vectors<T>(p.n, [=](std::int64_t j, auto part, int) HWY_ATTR {
    if constexpr (W::Ahead) {
      hwy::Prefetch(x + j + ahead);
      hwy::Prefetch(dy + j + ahead);
    }
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
  static constexpr int Rows = WideBackwardRows;
  const RmsNormWork<T>& a;
  T* dgamma;
  double inverse;
  double sums[Rows] = {};
  T means[Rows] = {};

  template <int kRows>
  HWY_INLINE void sum(std::int64_t r, std::int64_t slot, Piece p) {
    sum_wide<W, kRows>(a, r, p, dgamma, sums + slot);
  }
  HWY_INLINE void finish(std::int64_t r, std::int64_t slot) {
    means[slot] = row_mean(a, r, inverse, sums[slot]);
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
  walk_wide<T>(begin, end, a.width, a.period, LaneTerms * lanes<T>(), a.period, true, walk);
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

template <class T>
void forward_task(const RmsNormWork<T>& a, std::int64_t begin, std::int64_t end) {
  if (a.sum != nullptr) {
    a.large ? forward_rows<true, true>(a, begin, end) : forward_rows<true, false>(a, begin, end);
  } else {
    a.large ? forward_rows<false, true>(a, begin, end) : forward_rows<false, false>(a, begin, end);
  }
}

}  // namespace

void rms_norm_forward_f32(const RmsNormWork<float>& a, std::int64_t begin, std::int64_t end) {
  forward_task(a, begin, end);
}
void rms_norm_forward_f64(const RmsNormWork<double>& a, std::int64_t begin, std::int64_t end) {
  forward_task(a, begin, end);
}
void rms_norm_backward_f32(const RmsNormWork<float>& a, std::int64_t begin, std::int64_t end,
                           float* dgamma) {
  backward_rows(a, begin, end, dgamma);
}
void rms_norm_backward_f64(const RmsNormWork<double>& a, std::int64_t begin, std::int64_t end,
                           double* dgamma) {
  backward_rows(a, begin, end, dgamma);
}

}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace steady {

using detail::check_span;
using detail::RepeatedGains;
using detail::RowPlan;
using detail::streams;

namespace {

HWY_EXPORT(rms_norm_forward_f32);
HWY_EXPORT(rms_norm_forward_f64);
HWY_EXPORT(rms_norm_backward_f32);
HWY_EXPORT(rms_norm_backward_f64);

template <class T>
auto forward_worker() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(rms_norm_forward_f32);
  } else {
    return HWY_DYNAMIC_DISPATCH(rms_norm_forward_f64);
  }
}

template <class T>
auto backward_worker() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(rms_norm_backward_f32);
  } else {
    return HWY_DYNAMIC_DISPATCH(rms_norm_backward_f64);
  }
}

template <class T>
T gain_offset(bool unit_offset, std::span<const T> gamma) {
  return unit_offset && !gamma.empty() ? T(1) : T(0);
}

}  // namespace

template <class T>
void rms_norm_forward(const RowShape& shape, double eps, bool unit_offset, std::span<const T> x,
                      std::span<const T> gamma, std::span<T> y, std::span<T> stats) {
  const char* op = "rms_norm_forward";
  RowPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "y", y.size(), shape.elements(), false);
  check_span(op, "stats", stats.size(), shape.rows, true);
  const RowPlan plan(shape);
  const RepeatedGains<T> gains(shape, gamma, {});
  const RmsNormWork<T> work{
      shape.width,  plan.period, eps,          gain_offset(unit_offset, gamma),  x.data(), nullptr,
      gains.view(), y.data(),    stats.data(), streams(shape, plan, 2, y.data())};
  const auto worker = forward_worker<T>();
  parallel_for(shape.rows, plan.task_rows,
               [&](std::int64_t begin, std::int64_t end) { worker(work, begin, end); });
}

template <class T>
void add_rms_norm_forward(const RowShape& shape, double eps, bool unit_offset,
                          std::span<const T> left, std::span<const T> right,
                          std::span<const T> gamma, std::span<T> sum, std::span<T> y,
                          std::span<T> stats) {
  const char* op = "add_rms_norm_forward";
  RowPlan::check(op, shape);
  check_span(op, "left", left.size(), shape.elements(), false);
  check_span(op, "right", right.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "sum", sum.size(), shape.elements(), false);
  check_span(op, "y", y.size(), shape.elements(), false);
  check_span(op, "stats", stats.size(), shape.rows, true);
  const RowPlan plan(shape);
  const RepeatedGains<T> gains(shape, gamma, {});
  const RmsNormWork<T> work{shape.width,  plan.period,
                            eps,          gain_offset(unit_offset, gamma),
                            sum.data(),   nullptr,
                            gains.view(), y.data(),
                            stats.data(), streams(shape, plan, 4, y.data()),
                            left.data(),  right.data(),
                            sum.data(),   nullptr};
  const auto worker = forward_worker<T>();
  parallel_for(shape.rows, plan.task_rows,
               [&](std::int64_t begin, std::int64_t end) { worker(work, begin, end); });
}

std::int64_t rms_norm_workspace(const RowShape& shape) { return RowPlan(shape).partials(1); }

template <class T>
void rms_norm_backward(const RowShape& shape, bool unit_offset, std::span<const T> x,
                       std::span<const T> dy, std::span<const T> gamma, std::span<const T> stats,
                       std::span<T> dx, std::span<T> dgamma, std::span<T> workspace,
                       std::span<const T> residual) {
  const char* op = "rms_norm_backward";
  RowPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "dy", dy.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "stats", stats.size(), shape.rows, false);
  check_span(op, "dx", dx.size(), shape.elements(), true);
  check_span(op, "dgamma", dgamma.size(), shape.affine, true);
  check_span(op, "workspace", workspace.size(), rms_norm_workspace(shape), false);
  check_span(op, "residual", residual.size(), shape.elements(), true);
  if (dx.empty() && dgamma.empty()) return;
  const RowPlan plan(shape);
  const RepeatedGains<T> gains(shape, gamma, {});
  const RmsNormWork<T> work{shape.width,
                            plan.period,
                            0,
                            gain_offset(unit_offset, gamma),
                            x.data(),
                            dy.data(),
                            gains.view(),
                            dx.data(),
                            const_cast<T*>(stats.data()),
                            streams(shape, plan, 3, dx.data()),
                            nullptr,
                            nullptr,
                            nullptr,
                            residual.data()};
  const auto worker = backward_worker<T>();
  parallel_for(plan.blocks, plan.task_blocks, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      T* partial = dgamma.empty() ? nullptr : workspace.data() + block * plan.period;
      if (partial != nullptr) std::fill_n(partial, plan.period, T(0));
      worker(work, block * plan.block_rows, std::min(shape.rows, (block + 1) * plan.block_rows),
             partial);
    }
  });
  if (!dgamma.empty()) detail::merge_partials(shape, workspace.data(), 1, 0, dgamma);
}

template void rms_norm_forward(const RowShape&, double, bool, std::span<const float>,
                               std::span<const float>, std::span<float>, std::span<float>);
template void rms_norm_forward(const RowShape&, double, bool, std::span<const double>,
                               std::span<const double>, std::span<double>, std::span<double>);
template void add_rms_norm_forward(const RowShape&, double, bool, std::span<const float>,
                                   std::span<const float>, std::span<const float>, std::span<float>,
                                   std::span<float>, std::span<float>);
template void add_rms_norm_forward(const RowShape&, double, bool, std::span<const double>,
                                   std::span<const double>, std::span<const double>,
                                   std::span<double>, std::span<double>, std::span<double>);
template void rms_norm_backward(const RowShape&, bool, std::span<const float>,
                                std::span<const float>, std::span<const float>,
                                std::span<const float>, std::span<float>, std::span<float>,
                                std::span<float>, std::span<const float>);
template void rms_norm_backward(const RowShape&, bool, std::span<const double>,
                                std::span<const double>, std::span<const double>,
                                std::span<const double>, std::span<double>, std::span<double>,
                                std::span<double>, std::span<const double>);

}  // namespace steady
#endif
