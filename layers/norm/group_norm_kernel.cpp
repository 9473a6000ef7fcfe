#include <steadygrad/layers/norm/group_norm_kernel.hpp>

#include <algorithm>
#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/column_apply_kernel.hpp>
#include <steadygrad/layers/norm/row_stats.hpp>
#include <vector>

// A sample [positions, channels] is contiguous and mostly fits the second cache. Its columns are
// reduced by the column kernels, the channels of a group merged in double, and the result applied
// while the cache still holds the sample.
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

// Element c of an array that may be absent.
template <class T>
double at(std::span<const T> values, std::int64_t c, double absent) {
  return values.empty() ? absent : static_cast<double>(values[static_cast<std::size_t>(c)]);
}

/// mean = mean + low, so that x - mean keeps its digits when the mean is large.
template <class T>
struct GroupStats {
  T mean, low, rstd;
};

/// The moments of the union of parts of equal size [Chan, Golub & LeVeque 1983]. Means are added as
/// deviations from the first: their sum would lose the digits by which they are alike.
Moments merge_equal(std::span<const Moments> parts) {
  const auto count = static_cast<double>(parts.size());
  const double pivot = parts.front().mean;
  double sum = 0;
  for (const Moments& part : parts) sum += part.mean - pivot;
  Moments total{.n = parts.front().n * count, .mean = pivot + sum / count, .m2 = 0};
  for (const Moments& part : parts) {
    const double d = part.mean - total.mean;
    total.m2 += part.m2 + part.n * d * d;
  }
  return total;
}

template <class T>
GroupStats<T> stats_of(const Moments& moments, double eps) {
  const T mean = static_cast<T>(moments.mean);
  return {mean, static_cast<T>(moments.mean - static_cast<double>(mean)),
          static_cast<T>(1.0 / std::sqrt(moments.variance() + eps))};
}

/// What one task needs to go through its samples: coefficients per channel.
template <class T>
struct Room {
  explicit Room(const GroupShape& shape)
      : mean(size(shape)),
        scale(size(shape)),
        shift(size(shape)),
        moments(size(shape)),
        columns(static_cast<std::size_t>(column_workspace(shape.slab()))) {}
  static std::size_t size(const GroupShape& shape) {
    return static_cast<std::size_t>(shape.channels);
  }
  std::vector<T> mean, scale, shift;
  std::vector<Moments> moments;
  std::vector<double> columns;
};

template <class T>
struct Forward {
  GroupShape shape;
  double eps;
  std::span<const T> x, gamma, beta;
  std::span<T> y, stats;
  std::span<Moments> moments;

  void sample(std::int64_t n, Room<T>& room) const {
    const auto slab = static_cast<std::size_t>(shape.slab().elements());
    const auto x_n = x.subspan(static_cast<std::size_t>(n) * slab, slab);
    const auto width = static_cast<std::size_t>(shape.group_channels());
    column_moments<T>(shape.slab(), x_n, room.moments, room.columns);
    for (std::int64_t g = 0; g < shape.groups; ++g) {
      const std::span<const Moments> parts(room.moments);
      const Moments merged = merge_equal(parts.subspan(static_cast<std::size_t>(g) * width, width));
      const GroupStats<T> s = stats_of<T>(merged, eps);
      const auto index = static_cast<std::size_t>(n * shape.groups + g);
      if (!moments.empty()) moments[index] = merged;
      if (!stats.empty()) {
        stats[3 * index] = s.mean;
        stats[3 * index + 1] = s.low;
        stats[3 * index + 2] = s.rstd;
      }
      for (std::size_t j = 0; j < width; ++j) {
        const std::size_t c = static_cast<std::size_t>(g) * width + j;
        const double a = static_cast<double>(s.rstd) * at(gamma, static_cast<std::int64_t>(c), 1);
        room.mean[c] = s.mean;
        room.scale[c] = static_cast<T>(a);
        room.shift[c] = static_cast<T>(at(beta, static_cast<std::int64_t>(c), 0) -
                                       static_cast<double>(s.low) * a);
      }
    }
    column_affine<T>(shape.slab(), {room.mean, room.scale, room.shift}, x_n,
                     y.subspan(static_cast<std::size_t>(n) * slab, slab));
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
  const Forward<T> forward{shape, eps, x, gamma, beta, y, stats, moments};
  parallel_for(shape.samples, GroupPlan(shape).task_samples,
               [&](std::int64_t begin, std::int64_t end) {
                 Room<T> room(shape);
                 for (std::int64_t n = begin; n < end; ++n) forward.sample(n, room);
               });
}

std::int64_t group_norm_workspace(const GroupShape& shape) {
  return GroupPlan(shape).tasks * 2 * shape.channels;
}

namespace {

template <class T>
struct BackwardRoom : Room<T> {
  explicit BackwardRoom(const GroupShape& shape)
      : Room<T>(shape),
        k(this->size(shape)),
        stats(3 * this->size(shape)),
        s1(this->size(shape)),
        s2(this->size(shape)) {}
  std::vector<T> k, stats;
  std::vector<double> s1, s2;
};

template <class T>
struct Backward {
  GroupShape shape;
  std::span<const T> x, dy, gamma, stats;
  std::span<T> dx;

  /// Adds to dgamma and dbeta, one value per channel.
  void sample(std::int64_t n, BackwardRoom<T>& room, double* dgamma, double* dbeta) const {
    const auto slab = static_cast<std::size_t>(shape.slab().elements());
    const auto x_n = x.subspan(static_cast<std::size_t>(n) * slab, slab);
    const auto dy_n = dy.subspan(static_cast<std::size_t>(n) * slab, slab);
    const std::int64_t width = shape.group_channels();
    const T* s = stats.data() + 3 * n * shape.groups;
    for (std::int64_t c = 0; c < shape.channels; ++c) {
      const auto i = static_cast<std::size_t>(c);
      room.stats[i] = s[3 * (c / width)];
      room.stats[i + room.s1.size()] = s[3 * (c / width) + 1];
    }
    column_sums<T>(shape.slab(), x_n, dy_n, room.stats, room.s1, room.s2, room.columns);
    for (std::int64_t g = 0; g < shape.groups; ++g) {
      coefficients(g, GroupStats<T>{s[3 * g], s[3 * g + 1], s[3 * g + 2]}, room);
    }
    for (std::int64_t c = 0; c < shape.channels; ++c) {
      const auto i = static_cast<std::size_t>(c);
      dgamma[c] += static_cast<double>(s[3 * (c / width) + 2]) * room.s2[i];
      dbeta[c] += room.s1[i];
    }
    if (dx.empty()) return;
    column_gradient<T>(shape.slab(), {room.mean, room.scale, room.shift, room.k}, x_n, dy_n,
                       dx.subspan(static_cast<std::size_t>(n) * slab, slab));
  }

  void coefficients(std::int64_t g, const GroupStats<T>& s, BackwardRoom<T>& room) const {
    const std::int64_t width = shape.group_channels();
    const auto count = static_cast<double>(shape.group_elements());
    const auto r = static_cast<double>(s.rstd);
    double g1 = 0, g2 = 0;
    for (std::int64_t c = g * width; c < (g + 1) * width; ++c) {
      g1 += at(gamma, c, 1) * room.s1[static_cast<std::size_t>(c)];
      g2 += at(gamma, c, 1) * room.s2[static_cast<std::size_t>(c)];
    }
    const double slope = -r * r * r * g2 / count;
    const double shift = -r * g1 / count - slope * static_cast<double>(s.low);
    for (std::int64_t c = g * width; c < (g + 1) * width; ++c) {
      const auto i = static_cast<std::size_t>(c);
      room.mean[i] = s.mean;
      room.scale[i] = static_cast<T>(at(gamma, c, 1) * r);
      room.shift[i] = static_cast<T>(slope);
      room.k[i] = static_cast<T>(shift);
    }
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
  const Backward<T> backward{shape, x, dy, gamma, stats, dx};
  const std::int64_t task_samples = GroupPlan(shape).task_samples;
  parallel_for(shape.samples, task_samples, [&](std::int64_t begin, std::int64_t end) {
    BackwardRoom<T> room(shape);
    double* partial = workspace.data() + begin / task_samples * 2 * shape.channels;
    std::fill_n(partial, 2 * shape.channels, 0.0);
    for (std::int64_t n = begin; n < end; ++n) {
      backward.sample(n, room, partial, partial + shape.channels);
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
