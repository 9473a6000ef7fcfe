#include <steadygrad/layers/norm/group_norm_kernel.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/scratch.hpp>
#include <steadygrad/core/kernels/stream.hpp>
#include <steadygrad/layers/norm/column_lines_kernel.hpp>
#include <steadygrad/layers/norm/layer_norm_kernel.hpp>
#include <steadygrad/layers/norm/row_stats.hpp>

// A sample [positions, channels] is contiguous and mostly fits the second cache. Its columns are
// reduced by the column kernels, the channels of a group merged in double, and the result applied
// while the cache still holds the sample; that pass, which has memory write, also fetches the next
// sample where the arrays come from memory. With one position a group is a row: the layer norm
// kernels.
//
// Derivation, one group of one sample with M elements; m(.) is the mean over them, u = dy,
// w = gamma * u:
//   xhat = (x - mean) * r,  r = (var + eps)^(-1/2),  y = gamma * xhat + beta.
// As in layer_norm_kernel.cpp, with P(v) = v - m(v) - xhat * m(v * xhat):
//   dx = r * P(w),  dgamma = sum over samples, positions of u * xhat,  dbeta = sum of u.
// With the column sums s1 = sum u and s2 = sum u * (x - mean), and over the channels of the group
// G1 = sum gamma * s1, G2 = sum gamma * s2:
//   dx = a * u + b * (x - mean) + k,  a = gamma * r,  b = -r^3 * G2 / M,  k = -r * G1 / M.
// Its derivative: group_norm_double_backward.cpp.

namespace steady {

using detail::check_span;
using detail::GroupPlan;

namespace detail {

GroupPlan::GroupPlan(const GroupShape& shape) {
  constexpr std::int64_t TaskElements = 65536;  // enough work to pay for handing it to a thread
  constexpr std::int64_t Line = 64;             // a strip of four full vectors of the widest target
  for (std::int64_t f = Line / shape.channels; f > 1 && fold == 1; --f) {
    if (shape.positions % f == 0) fold = f;
  }
  period = fold * shape.channels;
  lines = shape.positions / fold;
  const std::int64_t sample = std::max<std::int64_t>(shape.slab().elements(), 1);
  task_samples = std::max<std::int64_t>(TaskElements / sample, 1);
  tasks = (shape.samples + task_samples - 1) / task_samples;
}

void GroupPlan::check(const char* op, const GroupShape& shape) {
  STEADY_CHECK(ShapeError,
               shape.samples >= 0 && shape.positions >= 0 && shape.channels >= 1 &&
                   shape.groups >= 1 && shape.channels % shape.groups == 0,
               "{}: needs samples >= 0, positions >= 0 and a number of groups that divides the "
               "channels; got samples {}, positions {}, channels {}, groups {}",
               op, shape.samples, shape.positions, shape.channels, shape.groups);
}

template <class T>
void merge_group_partials(const GroupShape& shape, std::span<const double> partials,
                          std::int64_t kinds, std::int64_t kind, std::span<T> out) {
  const std::int64_t tasks = GroupPlan(shape).tasks;
  for (std::size_t c = 0; c < out.size(); ++c) {
    double sum = 0;
    for (std::int64_t task = 0; task < tasks; ++task) {
      sum += partials[static_cast<std::size_t>((task * kinds + kind) * shape.channels) + c];
    }
    out[c] = static_cast<T>(sum);
  }
}
template void merge_group_partials(const GroupShape&, std::span<const double>, std::int64_t,
                                   std::int64_t, std::span<float>);
template void merge_group_partials(const GroupShape&, std::span<const double>, std::int64_t,
                                   std::int64_t, std::span<double>);

}  // namespace detail

namespace {

/// `values`, or `absent` for each channel, as double; in scratch memory of the calling thread.
template <class Tag, class T>
const double* widened(const GroupShape& shape, std::span<const T> values, double absent) {
  const std::span<double> all =
      kernels::thread_scratch<Tag>().template take<double>(shape.channels);
  if (values.empty()) {
    std::ranges::fill(all, absent);
  } else {
    std::ranges::copy(values, all.begin());
  }
  return all.data();
}
struct Gains;
struct Shifts;

/// mean = mean + low, so that x - mean keeps its digits when the mean is large.
template <class T>
struct GroupStats {
  T mean, low, rstd;
};

/// Moments of group g from those of the columns, which all have as many elements [Chan, Golub &
/// LeVeque 1983]. Means are added as deviations from the first: their sum would lose the digits by
/// which they are alike.
Moments merge_group(const GroupShape& shape, const GroupPlan& plan, std::int64_t g,
                    const double* mean, const double* m2) {
  const std::int64_t width = shape.group_channels();
  const std::int64_t first = g * width;
  const auto each = [&](auto body) {
    for (std::int64_t base = first; base < plan.period; base += shape.channels) {
      for (std::int64_t j = base; j < base + width; ++j) body(j);
    }
  };
  const double pivot = mean[first];
  const auto n = static_cast<double>(plan.lines);
  double sum = 0;
  each([&](std::int64_t j) { sum += mean[j] - pivot; });
  const auto columns = static_cast<double>(plan.fold * width);
  Moments total{.n = n * columns, .mean = pivot + sum / columns, .m2 = 0};
  each([&](std::int64_t j) {
    const double d = mean[j] - total.mean;
    total.m2 += (m2[j] < 0 ? 0 : m2[j]) + n * d * d;
  });
  return total;
}

/// Moments of group g of one sample in double: of one whose squares overflow in float.
template <class T>
Moments wide_moments(const GroupShape& shape, std::int64_t g, const T* x) {
  const auto each = [&](auto body) {
    for (std::int64_t p = 0; p < shape.positions; ++p) {
      const T* first = x + p * shape.channels + g * shape.group_channels();
      for (std::int64_t j = 0; j < shape.group_channels(); ++j) {
        body(static_cast<double>(first[j]));
      }
    }
  };
  Moments total{.n = static_cast<double>(shape.group_elements()), .mean = 0, .m2 = 0};
  each([&](double v) { total.mean += v / total.n; });
  each([&](double v) { total.m2 += (v - total.mean) * (v - total.mean); });
  return total;
}

/// One position, groups of full vectors: row n * groups + g is group g of sample n.
bool groups_are_rows(const GroupShape& shape) {
  return shape.positions == 1 && shape.group_channels() >= 16;
}
RowShape rows_of(const GroupShape& shape) {
  return {shape.samples * shape.groups, shape.group_channels(), shape.channels};
}

template <class T>
bool streams(const GroupShape& shape, const GroupPlan& plan, std::int64_t arrays, const T* out) {
  constexpr auto Size = static_cast<std::int64_t>(sizeof(T));
  return kernels::streams(arrays * shape.elements() * Size, out, plan.period * Size);
}

template <class T>
GroupStats<T> stats_of(const Moments& moments, double eps) {
  const T mean = static_cast<T>(moments.mean);
  return {mean, static_cast<T>(moments.mean - static_cast<double>(mean)),
          static_cast<T>(1.0 / std::sqrt(moments.variance() + eps))};
}

/// Values per column of a line, on the calling thread; the arrays of a kind start on lines of the
/// caches.
struct ColumnSums;
struct Coefficients;
template <class T, class Tag>
class Columns {
 public:
  Columns(const GroupPlan& plan, std::int64_t kinds)
      : pitch_((plan.period + 15) / 16 * 16),
        values_(kernels::thread_scratch<Tag>().template take<T>(kinds * pitch_)) {}
  T* operator[](std::int64_t kind) const { return values_.data() + kind * pitch_; }

 private:
  std::int64_t pitch_;
  std::span<T> values_;
};

/// Copies what the first `channels` columns of a line hold to the rest of it.
template <class T>
void repeat(const GroupShape& shape, const GroupPlan& plan, T* columns) {
  for (std::int64_t base = shape.channels; base < plan.period; base += shape.channels) {
    std::copy_n(columns, shape.channels, columns + base);
  }
}

template <class T>
struct Forward {
  GroupShape shape;
  GroupPlan plan;
  double eps;
  std::span<const T> x;
  const double *gamma, *beta;
  std::span<T> y, stats;
  std::span<Moments> moments;
  bool stream;

  void sample(std::int64_t n) const {
    const std::int64_t slab = shape.slab().elements();
    const T* x_n = x.data() + n * slab;
    const Columns<double, ColumnSums> sums(plan, 2);
    const Columns<T, Coefficients> k(plan, 3);
    for (const std::int64_t kind : {0, 1}) std::fill_n(sums[kind], plan.period, 0.0);
    detail::moments_lines(x_n, plan.period, plan.lines, plan.period, sums[0], sums[1]);
    for (std::int64_t g = 0; g < shape.groups; ++g) {
      Moments total = merge_group(shape, plan, g, sums[0], sums[1]);
      if (sizeof(T) == 4 && !(total.m2 <= std::numeric_limits<double>::max())) {
        total = wide_moments(shape, g, x_n);
      }
      const auto index = static_cast<std::size_t>(n * shape.groups + g);
      if (!moments.empty()) moments[index] = total;
      coefficients(g, stats_of<T>(total, eps), index, k);
    }
    for (const std::int64_t kind : {0, 1, 2}) repeat(shape, plan, k[kind]);
    const T* ahead = stream && n + 1 < shape.samples ? x_n + slab : nullptr;
    detail::affine_lines<T>({plan.period, plan.lines, plan.period, stream},
                            {x_n, ahead, y.data() + n * slab, k[0], k[1], k[2]});
  }

  void coefficients(std::int64_t g, const GroupStats<T>& s, std::size_t index,
                    const Columns<T, Coefficients>& k) const {
    if (!stats.empty()) {
      stats[3 * index] = s.mean;
      stats[3 * index + 1] = s.low;
      stats[3 * index + 2] = s.rstd;
    }
    const std::int64_t width = shape.group_channels();
    for (std::int64_t c = g * width; c < (g + 1) * width; ++c) {
      const double a = static_cast<double>(s.rstd) * gamma[c];
      k[0][c] = s.mean;
      k[1][c] = static_cast<T>(a);
      k[2][c] = static_cast<T>(beta[c] - static_cast<double>(s.low) * a);
    }
  }
};

}  // namespace

template <class T>
void group_norm_forward(const GroupShape& shape, double eps, std::span<const T> x,
                        std::span<const T> gamma, std::span<const T> beta, std::span<T> y,
                        std::span<T> stats, std::span<Moments> moments) {
  const char* op = "group_norm_forward";
  GroupPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.channels, true);
  check_span(op, "beta", beta.size(), shape.channels, true);
  check_span(op, "y", y.size(), shape.elements(), false);
  check_span(op, "stats", stats.size(), 3 * shape.samples * shape.groups, true);
  check_span(op, "moments", moments.size(), shape.samples * shape.groups, true);
  if (groups_are_rows(shape) && moments.empty()) {
    return layer_norm_forward<T>(rows_of(shape), eps, x, gamma, beta, y, stats);
  }
  const GroupPlan plan(shape);
  const bool stream = streams(shape, plan, 2, y.data());
  const Forward<T> forward{
      shape, plan,    eps,   x, widened<Gains>(shape, gamma, 1), widened<Shifts>(shape, beta, 0), y,
      stats, moments, stream};
  parallel_for(shape.samples, plan.task_samples, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) forward.sample(n);
  });
}

std::int64_t group_norm_workspace(const GroupShape& shape) {
  return GroupPlan(shape).tasks * 2 * shape.channels;
}

namespace {

template <class T>
struct Backward {
  GroupShape shape;
  GroupPlan plan;
  std::span<const T> x, dy;
  const double* gamma;
  std::span<const T> stats;
  std::span<T> dx;
  bool stream;

  /// Adds to dgamma and dbeta, one value per channel.
  void sample(std::int64_t n, double* dgamma, double* dbeta) const {
    const std::int64_t slab = shape.slab().elements();
    const T* x_n = x.data() + n * slab;
    const T* dy_n = dy.data() + n * slab;
    const std::int64_t width = shape.group_channels();
    const T* s = stats.data() + 3 * n * shape.groups;
    const Columns<double, ColumnSums> sums(plan, 2);
    const Columns<T, Coefficients> k(plan, 4);
    for (std::int64_t g = 0; g < shape.groups; ++g) std::fill_n(k[0] + g * width, width, s[3 * g]);
    repeat(shape, plan, k[0]);
    column_sums(x_n, dy_n, k[0], sums);
    for (std::int64_t g = 0; g < shape.groups; ++g) {
      const GroupStats<T> group{s[3 * g], s[3 * g + 1], s[3 * g + 2]};
      coefficients(g, group, sums, k, dgamma, dbeta);
    }
    if (dx.empty()) return;
    for (const std::int64_t kind : {1, 2, 3}) repeat(shape, plan, k[kind]);
    const std::int64_t ahead = stream && n + 1 < shape.samples ? slab : 0;
    detail::gradient_lines<T>(
        {plan.period, plan.lines, plan.period, stream},
        {x_n, dy_n, ahead == 0 ? nullptr : x_n + ahead, ahead == 0 ? nullptr : dy_n + ahead,
         dx.data() + n * slab, k[0], k[1], k[2], k[3]});
  }

  /// Per channel the sums of dy and of dy * (x - pivot), the mean rounded to T.
  void column_sums(const T* x_n, const T* dy_n, const T* pivots,
                   const Columns<double, ColumnSums>& sums) const {
    for (const std::int64_t kind : {0, 1}) std::fill_n(sums[kind], plan.period, 0.0);
    detail::sums_lines(x_n, dy_n, pivots, {}, plan.period, plan.lines, plan.period, sums[0],
                       sums[1]);
    for (const std::int64_t kind : {0, 1}) {
      for (std::int64_t base = shape.channels; base < plan.period; base += shape.channels) {
        for (std::int64_t c = 0; c < shape.channels; ++c) sums[kind][c] += sums[kind][base + c];
      }
    }
  }

  /// Those of dx in group g, whose channels are added to dgamma and dbeta; the second sums are
  /// moved from the pivot to the mean.
  void coefficients(std::int64_t g, const GroupStats<T>& s, const Columns<double, ColumnSums>& sums,
                    const Columns<T, Coefficients>& k, double* dgamma, double* dbeta) const {
    const std::int64_t first = g * shape.group_channels(), last = first + shape.group_channels();
    const double *s1 = sums[0], *s2 = sums[1];
    const auto r = static_cast<double>(s.rstd), low = static_cast<double>(s.low);
    double g1 = 0, g2 = 0;
    for (std::int64_t c = first; c < last; ++c) {
      const double centred = s2[c] - low * s1[c];
      g1 += gamma[c] * s1[c];
      g2 += gamma[c] * centred;
      dgamma[c] += r * centred;
      dbeta[c] += s1[c];
      k[1][c] = static_cast<T>(gamma[c] * r);
    }
    const auto count = static_cast<double>(shape.group_elements());
    const double slope = -r * r * r * g2 / count;
    std::fill(k[2] + first, k[2] + last, static_cast<T>(slope));
    std::fill(k[3] + first, k[3] + last, static_cast<T>(-r * g1 / count - slope * low));
  }
};

}  // namespace

template <class T>
void group_norm_backward(const GroupShape& shape, std::span<const T> x, std::span<const T> dy,
                         std::span<const T> gamma, std::span<const T> stats, std::span<T> dx,
                         std::span<T> dgamma, std::span<T> dbeta, std::span<double> workspace) {
  const char* op = "group_norm_backward";
  GroupPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "dy", dy.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.channels, true);
  check_span(op, "stats", stats.size(), 3 * shape.samples * shape.groups, false);
  check_span(op, "dx", dx.size(), shape.elements(), true);
  check_span(op, "dgamma", dgamma.size(), shape.channels, true);
  check_span(op, "dbeta", dbeta.size(), shape.channels, true);
  check_span(op, "workspace", workspace.size(), group_norm_workspace(shape), false);
  if (groups_are_rows(shape)) {
    struct RowPartials;
    const RowShape rows = rows_of(shape);
    return layer_norm_backward<T>(
        rows, x, dy, gamma, stats, dx, dgamma, dbeta,
        kernels::thread_scratch<RowPartials>().template take<T>(layer_norm_workspace(rows)));
  }
  const GroupPlan plan(shape);
  const Backward<T> backward{shape,
                             plan,
                             x,
                             dy,
                             widened<Gains>(shape, gamma, 1),
                             stats,
                             dx,
                             !dx.empty() && streams<T>(shape, plan, 3, dx.data())};
  parallel_for(shape.samples, plan.task_samples, [&](std::int64_t begin, std::int64_t end) {
    double* partial = workspace.data() + begin / plan.task_samples * 2 * shape.channels;
    std::fill_n(partial, 2 * shape.channels, 0.0);
    for (std::int64_t n = begin; n < end; ++n) {
      backward.sample(n, partial, partial + shape.channels);
    }
  });
  detail::merge_group_partials<T>(shape, workspace, 2, 0, dgamma);
  detail::merge_group_partials<T>(shape, workspace, 2, 1, dbeta);
}

template void group_norm_forward(const GroupShape&, double, std::span<const float>,
                                 std::span<const float>, std::span<const float>, std::span<float>,
                                 std::span<float>, std::span<Moments>);
template void group_norm_forward(const GroupShape&, double, std::span<const double>,
                                 std::span<const double>, std::span<const double>,
                                 std::span<double>, std::span<double>, std::span<Moments>);
template void group_norm_backward(const GroupShape&, std::span<const float>, std::span<const float>,
                                  std::span<const float>, std::span<const float>, std::span<float>,
                                  std::span<float>, std::span<float>, std::span<double>);
template void group_norm_backward(const GroupShape&, std::span<const double>,
                                  std::span<const double>, std::span<const double>,
                                  std::span<const double>, std::span<double>, std::span<double>,
                                  std::span<double>, std::span<double>);

}  // namespace steady
