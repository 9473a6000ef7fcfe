#include <algorithm>
#include <limits>
#include <steadygrad/layers/norm/column_coefficients_kernel.hpp>
#include <steadygrad/layers/norm/column_lines_kernel.hpp>
#include <steadygrad/layers/norm/column_stats.hpp>
#include <steadygrad/layers/norm/row_stats.hpp>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "layers/norm/column_stats.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, which fixes the target it is read for.
#include <steadygrad/layers/norm/column_groups-inl.hpp>

// Columns are reduced over sub-blocks of SumLines lines in T; from sub-block to sub-block, and from
// chunk to chunk, in double.
//
// Moments use a running pivot K, the mean so far rounded to T (for the first sub-block the mean of
// its first PivotLines lines):
//   c = sum (x - K),  q = sum (x - K)^2,  mean of the sub-block = K + c/n,  M2 = q - c^2/n,
// merged after Chan, Golub & LeVeque. The error of q is eps * n * (mean - K)^2. The merge itself
// adds at least half of n * (mean - K)^2 to M2, and in the first sub-block, if longer, M2 has at
// least PivotLines * (mean - K)^2 from the lines that K is the mean of: the relative error stays of
// the order of eps.

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

using detail::GateLines;

constexpr std::int64_t SumLines = detail::ColumnPlan::SumLines;
/// Where there are 32 registers, columns are reduced in strips whose sums stay in registers: of
/// eight vectors, with one pivot and two sums each, then of four and of one.
constexpr bool Strips = HWY_TARGET <= HWY_AVX3;
constexpr int StripVectors = 4;

// Calls strip(column, integral_constant vectors, part, more) for the strips of [0, columns); `more`
// unless it is the last.
template <class T, class Strip>
HWY_INLINE void for_strips(std::int64_t columns, Strip&& strip) {
  const std::int64_t step = lanes<T>();
  const std::int64_t wide = StripVectors * step;
  std::int64_t j = 0;
  for (; j + 2 * wide <= columns; j += 2 * wide) {
    strip(j, std::integral_constant<int, 2 * StripVectors>{}, Whole{}, j + 2 * wide < columns);
  }
  for (; j + wide <= columns; j += wide) {
    strip(j, std::integral_constant<int, StripVectors>{}, Whole{}, j + wide < columns);
  }
  for (; j + step <= columns; j += step) {
    strip(j, std::integral_constant<int, 1>{}, Whole{}, j + step < columns);
  }
  if (j < columns) strip(j, std::integral_constant<int, 1>{}, Part{columns - j}, false);
}

// Fetches what the next strip reads of this line: memory is read line by line, not in columns.
template <class T>
HWY_INLINE void prefetch_next(const T* p, std::int64_t step) {
  for (int v = 0; v < StripVectors; ++v) hwy::Prefetch(p + v * step);
}

template <class T, int kVectors>
HWY_INLINE std::int64_t width_of(Whole) {
  return kVectors * lanes<T>();
}
template <class T, int kVectors>
HWY_INLINE std::int64_t width_of(Part part) {
  return std::min(part.count, lanes<T>());  // the same, and a bound the compiler can see
}

// One strip of one sub-block of n lines; `before` lines are in mean and m2 already.
template <class T, int kVectors, class P>
HWY_INLINE void moments_strip(const T* x, std::int64_t stride, std::int64_t n, std::int64_t before,
                              P part, bool more, double* mean, double* m2) {
  GroupSums<T> pivots, sums, squares;
  const std::int64_t step = lanes<T>();
  const std::int64_t width = width_of<T, kVectors>(part);
  Vec<T> pivot[kVectors], c[kVectors], q[kVectors];
  for (int v = 0; v < kVectors; ++v) c[v] = q[v] = fill(T(0));
  if (before == 0) {
    const std::int64_t first = std::min(PivotLines, n);
    for (std::int64_t line = 0; line < first; ++line) {
      for (int v = 0; v < kVectors; ++v) {
        c[v] = hn::Add(c[v], load(x + line * stride + v * step, part));
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      pivot[v] = hn::Mul(c[v], fill(T(1) / static_cast<T>(first)));
      store(pivot[v], pivots.at + v * step, Whole{});
      c[v] = fill(T(0));
    }
  } else {
    narrow_means(width, mean, pivots.at);
    take<false, kVectors>(pivots.at, pivot);
  }
  for (std::int64_t line = 0; line < n; ++line) {
    if (more) prefetch_next(x + line * stride + width, step);
    for (int v = 0; v < kVectors; ++v) {
      const Vec<T> d = hn::Sub(load(x + line * stride + v * step, part), pivot[v]);
      c[v] = hn::Add(c[v], d);
      q[v] = fma(d, d, q[v]);
    }
  }
  give<kVectors>(c, sums.at);
  give<kVectors>(q, squares.at);
  merge_lines(width, n, before, pivots.at, sums.at, squares.at, mean, m2);
}

template <class T>
HWY_FLATTEN void moments(const T* x, std::int64_t stride, std::int64_t lines, std::int64_t columns,
                         double* mean, double* m2) {
  for (std::int64_t line = 0; line < lines; line += SumLines) {
    const std::int64_t n = std::min(SumLines, lines - line);
    const T* block = x + line * stride;
    if constexpr (Strips) {
      for_strips<T>(columns, [&](std::int64_t j, auto vectors, auto part, bool more) HWY_ATTR {
        moments_strip<T, vectors()>(block + j, stride, n, line, part, more, mean + j, m2 + j);
      });
    } else {
      for (std::int64_t j = 0; j < columns; j += GroupColumns) {
        const Lines g{stride, n, std::min(GroupColumns, columns - j)};
        group_moments(block + j, g, line, mean + j, m2 + j);
      }
    }
  }
}

template <bool kGate, class T, int kVectors, class P>
HWY_INLINE void sums_strip(const T* x, const T* dy, const T* pivots, const GateLines<T>& gate,
                           std::int64_t stride, std::int64_t n, P part, bool more, double* s1,
                           double* s2) {
  GroupSums<T> first, second;
  const std::int64_t step = lanes<T>();
  Vec<T> pivot[kVectors], a[kVectors], b[kVectors];
  constexpr int Gates = std::max(1, kGate * kVectors);
  Vec<T> scale[Gates], shift[Gates];
  for (int v = 0; v < kVectors; ++v) {
    pivot[v] = load(pivots + v * step, part);
    a[v] = b[v] = fill(T(0));
    if constexpr (kGate) {
      scale[v] = load(gate.scale + v * step, part);
      shift[v] = load(gate.shift + v * step, part);
    }
  }
  const std::int64_t width = width_of<T, kVectors>(part);
  for (std::int64_t line = 0; line < n; ++line) {
    if (more) {
      prefetch_next(x + line * stride + width, step);
      prefetch_next(dy + line * stride + width, step);
    }
    for (int v = 0; v < kVectors; ++v) {
      Vec<T> u = load(dy + line * stride + v * step, part);
      const Vec<T> d = hn::Sub(load(x + line * stride + v * step, part), pivot[v]);
      if constexpr (kGate) u = gated(u, fma(d, scale[v], shift[v]));
      a[v] = hn::Add(a[v], u);
      b[v] = fma(u, d, b[v]);
    }
  }
  give<kVectors>(a, first.at);
  give<kVectors>(b, second.at);
  add_sums(width, first.at, s1);
  add_sums(width, second.at, s2);
}

template <bool kGate, class T>
HWY_FLATTEN void sums(const T* x, const T* dy, const T* pivots, const GateLines<T>& gate,
                      std::int64_t stride, std::int64_t lines, std::int64_t columns, double* s1,
                      double* s2) {
  for (std::int64_t line = 0; line < lines; line += SumLines) {
    const std::int64_t n = std::min(SumLines, lines - line);
    const T *block = x + line * stride, *dy_block = dy + line * stride;
    const auto gate_at = [&](std::int64_t j) HWY_ATTR {
      return kGate ? GateLines<T>{gate.scale + j, gate.shift + j} : GateLines<T>{};
    };
    if constexpr (Strips) {
      for_strips<T>(columns, [&](std::int64_t j, auto vectors, auto part, bool more) HWY_ATTR {
        sums_strip<kGate, T, vectors()>(block + j, dy_block + j, pivots + j, gate_at(j), stride, n,
                                        part, more, s1 + j, s2 + j);
      });
    } else {
      for (std::int64_t j = 0; j < columns; j += GroupColumns) {
        const Lines g{stride, n, std::min(GroupColumns, columns - j)};
        group_sums<kGate>(block + j, dy_block + j, pivots + j, gate_at(j), g, s1 + j, s2 + j);
      }
    }
  }
}

}  // namespace

void column_moments_f32(const float* x, std::int64_t stride, std::int64_t lines,
                        std::int64_t columns, double* mean, double* m2) {
  moments(x, stride, lines, columns, mean, m2);
}
void column_moments_f64(const double* x, std::int64_t stride, std::int64_t lines,
                        std::int64_t columns, double* mean, double* m2) {
  moments(x, stride, lines, columns, mean, m2);
}
void column_sums_f32(const float* x, const float* dy, const float* pivots,
                     const GateLines<float>& gate, std::int64_t stride, std::int64_t lines,
                     std::int64_t columns, double* s1, double* s2) {
  gate.scale == nullptr ? sums<false>(x, dy, pivots, gate, stride, lines, columns, s1, s2)
                        : sums<true>(x, dy, pivots, gate, stride, lines, columns, s1, s2);
}
void column_sums_f64(const double* x, const double* dy, const double* pivots,
                     const GateLines<double>& gate, std::int64_t stride, std::int64_t lines,
                     std::int64_t columns, double* s1, double* s2) {
  gate.scale == nullptr ? sums<false>(x, dy, pivots, gate, stride, lines, columns, s1, s2)
                        : sums<true>(x, dy, pivots, gate, stride, lines, columns, s1, s2);
}

}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace steady {

using detail::check_span;
using detail::ColumnPlan;
using detail::GateLines;

namespace {

HWY_EXPORT(column_moments_f32);
HWY_EXPORT(column_moments_f64);
HWY_EXPORT(column_sums_f32);
HWY_EXPORT(column_sums_f64);

}  // namespace

namespace detail {

template <class T>
void moments_lines(const T* x, std::int64_t stride, std::int64_t lines, std::int64_t columns,
                   double* mean, double* m2) {
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(column_moments_f32)(x, stride, lines, columns, mean, m2);
  } else {
    HWY_DYNAMIC_DISPATCH(column_moments_f64)(x, stride, lines, columns, mean, m2);
  }
}
template void moments_lines(const float*, std::int64_t, std::int64_t, std::int64_t, double*,
                            double*);
template void moments_lines(const double*, std::int64_t, std::int64_t, std::int64_t, double*,
                            double*);

template <class T>
void sums_lines(const T* x, const T* dy, const T* pivots, const GateLines<T>& gate,
                std::int64_t stride, std::int64_t lines, std::int64_t columns, double* s1,
                double* s2) {
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(column_sums_f32)(x, dy, pivots, gate, stride, lines, columns, s1, s2);
  } else {
    HWY_DYNAMIC_DISPATCH(column_sums_f64)(x, dy, pivots, gate, stride, lines, columns, s1, s2);
  }
}
template void sums_lines(const float*, const float*, const float*, const GateLines<float>&,
                         std::int64_t, std::int64_t, std::int64_t, double*, double*);
template void sums_lines(const double*, const double*, const double*, const GateLines<double>&,
                         std::int64_t, std::int64_t, std::int64_t, double*, double*);

}  // namespace detail

namespace {

// Merges the moments [chunk][mean, M2][period] into chunk 0; the counts are those of the plan.
void merge_chunks(const ColumnPlan& plan, double* partials) {
  double* mean = partials;
  double* m2 = partials + plan.period;
  for (std::int64_t chunk = 1; chunk < plan.chunks; ++chunk) {
    const double* next_mean = partials + chunk * 2 * plan.period;
    const double* next_m2 = next_mean + plan.period;
    const auto before = static_cast<double>(chunk * plan.chunk_lines);
    const auto n =
        static_cast<double>(std::min(plan.chunk_lines, plan.lines - chunk * plan.chunk_lines));
    const double share = n / (before + n);
    for (std::int64_t j = 0; j < plan.period; ++j) {
      const double d = next_mean[j] - mean[j];
      mean[j] += d * share;
      m2[j] += next_m2[j] + d * d * (before * share);
    }
  }
}

/// Moments of one column in double: of one whose squares overflow in float.
template <class T>
Moments wide_moments(const ColumnShape& shape, std::span<const T> x, std::int64_t c) {
  const auto channels = static_cast<std::size_t>(shape.channels);
  Moments total{.n = static_cast<double>(shape.rows), .mean = 0, .m2 = 0};
  for (auto i = static_cast<std::size_t>(c); i < x.size(); i += channels) {
    total.mean += static_cast<double>(x[i]) / total.n;
  }
  for (auto i = static_cast<std::size_t>(c); i < x.size(); i += channels) {
    const double d = static_cast<double>(x[i]) - total.mean;
    total.m2 += d * d;
  }
  return total;
}

}  // namespace

double Moments::unbiased_variance() const {
  return n < 2 ? std::numeric_limits<double>::quiet_NaN() : m2 / (n - 1);
}

Moments merge(const Moments& first, const Moments& second) {
  if (first.n == 0) return second;
  if (second.n == 0) return first;
  const double d = second.mean - first.mean;
  const double share = second.n / (first.n + second.n);
  return {first.n + second.n, first.mean + d * share,
          first.m2 + second.m2 + d * d * (first.n * share)};
}

void merge_moments(std::span<const Moments> next, std::span<Moments> total) {
  check_span("merge_moments", "next", next.size(), static_cast<std::int64_t>(total.size()), false);
  for (std::size_t c = 0; c < total.size(); ++c) total[c] = merge(total[c], next[c]);
}

std::int64_t column_workspace(const ColumnShape& shape) {
  const ColumnPlan plan(shape);
  return plan.chunks * ColumnPlan::Kinds * plan.period + ColumnPlan::Kinds * plan.channels;
}

template <class T>
void column_moments(const ColumnShape& shape, std::span<const T> x, std::span<Moments> moments,
                    std::span<double> workspace) {
  const char* op = "column_moments";
  ColumnPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "moments", moments.size(), shape.channels, false);
  check_span(op, "workspace", workspace.size(), column_workspace(shape), false);
  const ColumnPlan plan(shape);
  double* partials = workspace.data();
  plan.for_pieces(false, [&](std::int64_t chunk, std::int64_t line, std::int64_t lines,
                             std::int64_t column, std::int64_t columns) {
    double* mean = partials + chunk * 2 * plan.period + column;
    detail::moments_lines(x.data() + line * plan.period + column, plan.period, lines, columns, mean,
                          mean + plan.period);
  });
  merge_chunks(plan, partials);
  const T* rest = x.data() + plan.lines * plan.period;
  for (std::int64_t c = 0; c < plan.channels; ++c) {
    Moments total;
    for (std::int64_t j = c; plan.lines > 0 && j < plan.period; j += plan.channels) {
      const double m2 = partials[plan.period + j];
      total = merge(total, {static_cast<double>(plan.lines), partials[j], m2 < 0 ? 0 : m2});
    }
    for (std::int64_t row = 0; row < plan.rest_rows; ++row) {
      total = merge(total, {1, static_cast<double>(rest[row * plan.channels + c]), 0});
    }
    const bool overflow = sizeof(T) == 4 && !(total.m2 <= std::numeric_limits<double>::max());
    moments[static_cast<std::size_t>(c)] = overflow ? wide_moments(shape, x, c) : total;
  }
}

template <class T>
void column_sums(const ColumnShape& shape, std::span<const T> x, const ColumnRows<T>& dy,
                 std::span<const T> stats, std::span<double> s1, std::span<double> s2,
                 std::span<double> workspace, const ColumnGate<T>& gate) {
  const char* op = "column_sums";
  ColumnPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "dy", dy.size(), shape.elements(), false);
  check_span(op, "stats", stats.size(), 3 * shape.channels, false);
  check_span(op, "s1", s1.size(), shape.channels, false);
  check_span(op, "s2", s2.size(), shape.channels, false);
  check_span(op, "gate's scale", gate.scale.size(), shape.channels, true);
  check_span(op, "gate's shift", gate.shift.size(), std::ssize(gate.scale), false);
  check_span(op, "workspace", workspace.size(), column_workspace(shape), false);
  const ColumnPlan plan(shape);
  double* partials = workspace.data();
  plan.for_pieces(false, [&](std::int64_t chunk, std::int64_t line, std::int64_t lines,
                             std::int64_t column, std::int64_t columns) {
    const detail::Coefficients<T> pivots(plan, stats, column, columns);
    const detail::GateCoefficients<T> passes(plan, gate, column, columns);
    double* first = partials + chunk * 2 * plan.period + column;
    double* second = first + plan.period;
    std::fill_n(first, columns, 0.0);
    std::fill_n(second, columns, 0.0);
    dy.for_lines(plan, line, lines, [&](std::int64_t from, std::int64_t count, const T* rows) {
      detail::sums_lines(x.data() + from * plan.period + column, rows + column, pivots.at,
                         passes.lines(), plan.period, count, columns, first, second);
    });
  });
  for (std::int64_t chunk = 1; chunk < plan.chunks; ++chunk) {
    const double* next = partials + chunk * 2 * plan.period;
    for (std::int64_t j = 0; j < 2 * plan.period; ++j) partials[j] += next[j];
  }
  const std::int64_t rest = plan.lines * plan.period;
  const std::int64_t rest_columns = plan.rest_rows * plan.channels;
  const T* rest_dy = rest_columns > 0 ? dy.rest(plan) : nullptr;
  T y[ColumnPlan::ColumnBlock];  // of the rest, by the kernel that made it in the forward
  if (!gate.scale.empty() && rest_columns > 0) {
    const detail::Coefficients<T> mean(plan, stats, 0, rest_columns);
    const detail::GateCoefficients<T> passes(plan, gate, 0, rest_columns);
    const GateLines<T> lines = passes.lines();
    detail::affine_lines<T>({plan.period, 1, rest_columns},
                            {x.data() + rest, nullptr, y, mean.at, lines.scale, lines.shift});
  }
  for (std::int64_t c = 0; c < plan.channels; ++c) {
    const auto mean = static_cast<double>(stats[static_cast<std::size_t>(c)]);
    const auto low = static_cast<double>(stats[static_cast<std::size_t>(plan.channels + c)]);
    double first = 0, second = 0;
    for (std::int64_t j = c; plan.lines > 0 && j < plan.period; j += plan.channels) {
      first += partials[j];
      second += partials[plan.period + j];
    }
    for (std::int64_t i = rest + c; i < shape.elements(); i += plan.channels) {
      if (!gate.scale.empty() && y[i - rest] <= T(0)) continue;
      const auto u = static_cast<double>(rest_dy[i - rest]);
      first += u;
      second += u * (static_cast<double>(x[static_cast<std::size_t>(i)]) - mean);
    }
    s1[static_cast<std::size_t>(c)] = first;
    s2[static_cast<std::size_t>(c)] = second - low * first;
  }
}

template void column_moments(const ColumnShape&, std::span<const float>, std::span<Moments>,
                             std::span<double>);
template void column_moments(const ColumnShape&, std::span<const double>, std::span<Moments>,
                             std::span<double>);
template void column_sums(const ColumnShape&, std::span<const float>, const ColumnRows<float>&,
                          std::span<const float>, std::span<double>, std::span<double>,
                          std::span<double>, const ColumnGate<float>&);
template void column_sums(const ColumnShape&, std::span<const double>, const ColumnRows<double>&,
                          std::span<const double>, std::span<double>, std::span<double>,
                          std::span<double>, const ColumnGate<double>&);

}  // namespace steady
#endif
