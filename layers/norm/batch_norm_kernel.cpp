#include <algorithm>
#include <steadygrad/layers/norm/batch_norm_kernel.hpp>
#include <steadygrad/layers/norm/row_stats.hpp>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "layers/norm/batch_norm_kernel.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, which fixes the target it is read for.
#include <steadygrad/core/kernels/simd-inl.hpp>

// Derivation, one channel of M elements; m(.) is the mean over the channel, u = dy:
//   xhat = (x - mean) * r,  r = (var + eps)^(-1/2),  y = gamma * xhat + beta.
// Train: from d mean = m(dx) and d r = -r^2 m(xhat dx) follows d xhat = r * P(dx) with
//   P(v) = v - m(v) - xhat * m(v * xhat),
// symmetric, hence dx = gamma * r * P(u). With s1 = sum u and s2 = sum u * (x - mean):
//   dbeta = s1,  dgamma = r * s2,
//   dx = a * u + b * (x - mean) + k,  a = gamma * r,  b = -a * r^2 * s2 / M,  k = -a * s1 / M.
// Frozen: mean and r are constants, dx = a * u: the same with s1 = s2 = 0.
// Its derivative: batch_norm_double_backward.cpp.

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

// y = (x - mean) * scale + shift, line by line; the coefficients of a line stay in the first cache.
template <class T>
HWY_FLATTEN void apply(const T* x, T* y, const T* mean, const T* scale, const T* shift,
                       std::int64_t stride, std::int64_t lines, std::int64_t columns) {
  for (std::int64_t line = 0; line < lines; ++line, x += stride, y += stride) {
    for_vectors<T>(columns, [&](std::int64_t j, auto part, int) HWY_ATTR {
      const Vec<T> d = hn::Sub(load(x + j, part), load(mean + j, part));
      store(fma(d, load(scale + j, part), load(shift + j, part)), y + j, part);
    });
  }
}

// dx = a * dy + b * (x - mean) + k.
template <class T>
HWY_FLATTEN void input_gradient(const T* x, const T* dy, T* dx, const T* mean, const T* a,
                                const T* b, const T* k, std::int64_t stride, std::int64_t lines,
                                std::int64_t columns) {
  for (std::int64_t line = 0; line < lines; ++line, x += stride, dy += stride, dx += stride) {
    for_vectors<T>(columns, [&](std::int64_t j, auto part, int) HWY_ATTR {
      const Vec<T> d = hn::Sub(load(x + j, part), load(mean + j, part));
      const Vec<T> v = fma(load(b + j, part), d, load(k + j, part));
      store(fma(load(a + j, part), load(dy + j, part), v), dx + j, part);
    });
  }
}

}  // namespace

void batch_norm_apply_f32(const float* x, float* y, const float* mean, const float* scale,
                          const float* shift, std::int64_t stride, std::int64_t lines,
                          std::int64_t columns) {
  apply(x, y, mean, scale, shift, stride, lines, columns);
}
void batch_norm_apply_f64(const double* x, double* y, const double* mean, const double* scale,
                          const double* shift, std::int64_t stride, std::int64_t lines,
                          std::int64_t columns) {
  apply(x, y, mean, scale, shift, stride, lines, columns);
}
void batch_norm_input_f32(const float* x, const float* dy, float* dx, const float* mean,
                          const float* a, const float* b, const float* k, std::int64_t stride,
                          std::int64_t lines, std::int64_t columns) {
  input_gradient(x, dy, dx, mean, a, b, k, stride, lines, columns);
}
void batch_norm_input_f64(const double* x, const double* dy, double* dx, const double* mean,
                          const double* a, const double* b, const double* k, std::int64_t stride,
                          std::int64_t lines, std::int64_t columns) {
  input_gradient(x, dy, dx, mean, a, b, k, stride, lines, columns);
}

}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace steady {

using detail::check_span;
using detail::ColumnPlan;

namespace {

HWY_EXPORT(batch_norm_apply_f32);
HWY_EXPORT(batch_norm_apply_f64);
HWY_EXPORT(batch_norm_input_f32);
HWY_EXPORT(batch_norm_input_f64);

template <class T>
auto apply_worker() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(batch_norm_apply_f32);
  } else {
    return HWY_DYNAMIC_DISPATCH(batch_norm_apply_f64);
  }
}

template <class T>
auto input_worker() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(batch_norm_input_f32);
  } else {
    return HWY_DYNAMIC_DISPATCH(batch_norm_input_f64);
  }
}

// Element c of an array that may be absent.
template <class T>
double at(std::span<const T> values, std::int64_t c, double absent) {
  return values.empty() ? absent : static_cast<double>(values[static_cast<std::size_t>(c)]);
}

// Aligned: a vector that straddles two cache lines halves the speed of the loops that read these.
template <class T>
struct alignas(64) Coefficients {
  T at[ColumnPlan::ColumnBlock];
};

/// Statistics of one channel from the lines of stats.
template <class T>
struct Channel {
  T mean;
  double low, rstd;
  Channel(std::span<const T> stats, std::int64_t c)
      : mean(stats[static_cast<std::size_t>(c)]),
        low(at(stats, static_cast<std::int64_t>(stats.size() / 3) + c, 0)),
        rstd(at(stats, static_cast<std::int64_t>(stats.size() / 3) * 2 + c, 0)) {}
};

// Runs body(offset of the piece, lines, columns, first channel) for all pieces and for the rest.
template <class Body>
void for_pieces_and_rest(const ColumnPlan& plan, Body body) {
  plan.for_pieces(true, [&](std::int64_t, std::int64_t line, std::int64_t lines,
                            std::int64_t column, std::int64_t columns) {
    body(line * plan.period + column, lines, columns, column);
  });
  if (plan.rest_rows > 0) {
    body(plan.lines * plan.period, std::int64_t{1}, plan.rest_rows * plan.channels,
         std::int64_t{0});
  }
}

}  // namespace

template <class T>
void batch_norm_apply(const ColumnShape& shape, std::span<const T> x, std::span<const T> gamma,
                      std::span<const T> beta, std::span<const T> stats, std::span<T> y) {
  const char* op = "batch_norm_apply";
  ColumnPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.channels, true);
  check_span(op, "beta", beta.size(), shape.channels, true);
  check_span(op, "stats", stats.size(), 3 * shape.channels, false);
  check_span(op, "y", y.size(), shape.elements(), false);
  const ColumnPlan plan(shape);
  const auto worker = apply_worker<T>();
  for_pieces_and_rest(plan, [&](std::int64_t offset, std::int64_t lines, std::int64_t columns,
                                std::int64_t column) {
    Coefficients<T> mean, scale, shift;
    plan.for_channels(column, columns, [&](std::int64_t j, std::int64_t c) {
      const Channel<T> channel(stats, c);
      const double a = channel.rstd * at(gamma, c, 1);
      mean.at[j] = channel.mean;
      scale.at[j] = static_cast<T>(a);
      shift.at[j] = static_cast<T>(at(beta, c, 0) - channel.low * a);
    });
    worker(x.data() + offset, y.data() + offset, mean.at, scale.at, shift.at, plan.period, lines,
           columns);
  });
}

template <class T>
void batch_norm_forward(const ColumnShape& shape, double eps, std::span<const T> x,
                        std::span<const T> gamma, std::span<const T> beta, std::span<T> y,
                        std::span<Moments> moments, std::span<T> stats,
                        std::span<double> workspace) {
  const char* op = "batch_norm_forward";
  ColumnPlan::check(op, shape);
  check_span(op, "gamma", gamma.size(), shape.channels, true);
  check_span(op, "beta", beta.size(), shape.channels, true);
  check_span(op, "y", y.size(), shape.elements(), false);
  check_span(op, "stats", stats.size(), 3 * shape.channels, false);
  column_moments<T>(shape, x, moments, workspace);
  batch_norm_stats<T>(moments, eps, stats);
  batch_norm_apply<T>(shape, x, gamma, beta, stats, y);
}

template <class T>
void batch_norm_backward_input(const ColumnShape& shape, double count, std::span<const T> x,
                               std::span<const T> dy, std::span<const T> gamma,
                               std::span<const T> stats, std::span<const double> s1,
                               std::span<const double> s2, std::span<T> dx) {
  const char* op = "batch_norm_backward_input";
  ColumnPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "dy", dy.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.channels, true);
  check_span(op, "stats", stats.size(), 3 * shape.channels, false);
  check_span(op, "s1", s1.size(), shape.channels, true);
  check_span(op, "s2", s2.size(), static_cast<std::int64_t>(s1.size()), false);
  check_span(op, "dx", dx.size(), shape.elements(), false);
  const ColumnPlan plan(shape);
  const auto worker = input_worker<T>();
  for_pieces_and_rest(plan, [&](std::int64_t offset, std::int64_t lines, std::int64_t columns,
                                std::int64_t column) {
    Coefficients<T> mean, a, b, k;
    plan.for_channels(column, columns, [&](std::int64_t j, std::int64_t c) {
      const Channel<T> channel(stats, c);
      const double scale = at(gamma, c, 1) * channel.rstd;
      const double slope = -scale * channel.rstd * channel.rstd * at(s2, c, 0) / count;
      mean.at[j] = channel.mean;
      a.at[j] = static_cast<T>(scale);
      b.at[j] = static_cast<T>(slope);
      k.at[j] = static_cast<T>(-scale * at(s1, c, 0) / count - slope * channel.low);
    });
    worker(x.data() + offset, dy.data() + offset, dx.data() + offset, mean.at, a.at, b.at, k.at,
           plan.period, lines, columns);
  });
}

namespace {

template <class T>
void backward(const char* op, bool frozen, const ColumnShape& shape, std::span<const T> x,
              std::span<const T> dy, std::span<const T> gamma, std::span<const T> stats,
              std::span<T> dx, std::span<T> dgamma, std::span<T> dbeta,
              std::span<double> workspace) {
  ColumnPlan::check(op, shape);
  check_span(op, "gamma", gamma.size(), shape.channels, true);
  check_span(op, "dx", dx.size(), shape.elements(), true);
  check_span(op, "dgamma", dgamma.size(), shape.channels, true);
  check_span(op, "dbeta", dbeta.size(), shape.channels, true);
  check_span(op, "workspace", workspace.size(), column_workspace(shape), false);
  const auto channels = static_cast<std::size_t>(shape.channels);
  const std::span<double> s1 = workspace.last(2 * channels).first(channels);
  const std::span<double> s2 = workspace.last(channels);
  if (!frozen || !dgamma.empty() || !dbeta.empty()) {
    column_sums<T>(shape, x, dy, stats, s1, s2, workspace);
  }
  for (std::size_t c = 0; c < dgamma.size(); ++c) {
    dgamma[c] = static_cast<T>(s2[c] * static_cast<double>(stats[2 * channels + c]));
  }
  for (std::size_t c = 0; c < dbeta.size(); ++c) dbeta[c] = static_cast<T>(s1[c]);
  if (dx.empty()) return;
  const auto rows = static_cast<double>(shape.rows);
  if (frozen) {
    batch_norm_backward_input<T>(shape, rows, x, dy, gamma, stats, {}, {}, dx);
  } else {
    batch_norm_backward_input<T>(shape, rows, x, dy, gamma, stats, s1, s2, dx);
  }
}

}  // namespace

template <class T>
void batch_norm_backward(const ColumnShape& shape, std::span<const T> x, std::span<const T> dy,
                         std::span<const T> gamma, std::span<const T> stats, std::span<T> dx,
                         std::span<T> dgamma, std::span<T> dbeta, std::span<double> workspace) {
  backward("batch_norm_backward", false, shape, x, dy, gamma, stats, dx, dgamma, dbeta, workspace);
}

template <class T>
void batch_norm_backward_frozen(const ColumnShape& shape, std::span<const T> x,
                                std::span<const T> dy, std::span<const T> gamma,
                                std::span<const T> stats, std::span<T> dx, std::span<T> dgamma,
                                std::span<T> dbeta, std::span<double> workspace) {
  backward("batch_norm_backward_frozen", true, shape, x, dy, gamma, stats, dx, dgamma, dbeta,
           workspace);
}

template void batch_norm_apply(const ColumnShape&, std::span<const float>, std::span<const float>,
                               std::span<const float>, std::span<const float>, std::span<float>);
template void batch_norm_apply(const ColumnShape&, std::span<const double>, std::span<const double>,
                               std::span<const double>, std::span<const double>, std::span<double>);
template void batch_norm_forward(const ColumnShape&, double, std::span<const float>,
                                 std::span<const float>, std::span<const float>, std::span<float>,
                                 std::span<Moments>, std::span<float>, std::span<double>);
template void batch_norm_forward(const ColumnShape&, double, std::span<const double>,
                                 std::span<const double>, std::span<const double>,
                                 std::span<double>, std::span<Moments>, std::span<double>,
                                 std::span<double>);
template void batch_norm_backward_input(const ColumnShape&, double, std::span<const float>,
                                        std::span<const float>, std::span<const float>,
                                        std::span<const float>, std::span<const double>,
                                        std::span<const double>, std::span<float>);
template void batch_norm_backward_input(const ColumnShape&, double, std::span<const double>,
                                        std::span<const double>, std::span<const double>,
                                        std::span<const double>, std::span<const double>,
                                        std::span<const double>, std::span<double>);
#define STEADY_BACKWARD(name, T)                                                         \
  template void name(const ColumnShape&, std::span<const T>, std::span<const T>,         \
                     std::span<const T>, std::span<const T>, std::span<T>, std::span<T>, \
                     std::span<T>, std::span<double>)
STEADY_BACKWARD(batch_norm_backward, float);
STEADY_BACKWARD(batch_norm_backward, double);
STEADY_BACKWARD(batch_norm_backward_frozen, float);
STEADY_BACKWARD(batch_norm_backward_frozen, double);
#undef STEADY_BACKWARD

}  // namespace steady
#endif
