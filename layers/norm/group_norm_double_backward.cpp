#include <algorithm>
#include <array>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/layers/norm/group_norm_kernel.hpp>
#include <steadygrad/layers/norm/row_stats.hpp>

// Derivative of the backward pass, one group of one sample; the sums are those of
// layer_norm_double_backward.cpp over the elements of the group: m(.) is their mean, u = dy,
// w = gamma * u, h = bg * u, P(v) = v - m(v) - xhat * m(v * xhat), and a, bg, bb the cotangents of
// dx, dgamma, dbeta. With A = m(a * xhat), G = m(w * xhat), cov = m(a * w) - m(a) * m(w):
//   dL/du     = gamma * r * P(a) + bg * xhat + bb
//   dL/dgamma = sum over samples and positions of u * r * P(a)
//   dL/dx     = r * P(h) - r^2 * (xhat * (cov - A * G) + G * P(a) + A * P(w)).

namespace steady {

using detail::check_span;
using detail::GroupPlan;

namespace {

template <class T>
struct Work {
  GroupShape shape;
  const T *x, *dy, *gamma, *stats, *ddx, *ddgamma, *ddbeta;  // from gamma on, each may be null
  T *ddy, *dx2;                                              // may be null
};

template <class T>
double value(const T* p, std::int64_t i, double absent) {
  return p == nullptr ? absent : static_cast<double>(p[i]);
}

/// One group: channels [first, first + width) of the elements [begin, end).
template <class T>
class Group {
 public:
  Group(const Work<T>& work, std::int64_t sample, std::int64_t group)
      : k_(work),
        first_(group * work.shape.group_channels()),
        begin_(sample * work.shape.slab().elements()) {
    const T* s = work.stats + 3 * (sample * work.shape.groups + group);
    mean_ = static_cast<double>(s[0]);
    low_ = static_cast<double>(s[1]);
    r_ = static_cast<double>(s[2]);
  }

  /// Writes the group's part of ddy and dx2 and adds to dgamma2.
  void run(double* dgamma2) {
    reduce();
    const double scale = m_[AW] - m_[A] * m_[W] - m_[AX] * m_[WX];
    for_elements([&](std::int64_t i, std::int64_t c) {
      const double xh = xhat(i), u = value(k_.dy, i, 0), gain = value(k_.gamma, c, 1);
      const double bg = value(k_.ddgamma, c, 0), bb = value(k_.ddbeta, c, 0);
      const double pa = value(k_.ddx, i, 0) - m_[A] - xh * m_[AX];
      const double pw = u * gain - m_[W] - xh * m_[WX];
      const double ph = u * bg - m_[H] - xh * m_[HX];
      if (k_.ddy != nullptr) k_.ddy[i] = static_cast<T>(gain * r_ * pa + bg * xh + bb);
      if (k_.dx2 != nullptr) {
        const double inner = xh * scale + m_[WX] * pa + m_[AX] * pw;
        k_.dx2[i] = static_cast<T>(r_ * ph - r_ * r_ * inner);
      }
      dgamma2[c] += u * r_ * pa;
    });
  }

 private:
  enum Kind : std::size_t { A, W, H, AX, WX, HX, AW, Kinds };

  [[nodiscard]] double xhat(std::int64_t i) const {
    return ((static_cast<double>(k_.x[i]) - mean_) - low_) * r_;
  }

  template <class Body>
  void for_elements(Body body) const {
    const std::int64_t width = k_.shape.group_channels();
    for (std::int64_t p = 0; p < k_.shape.positions; ++p) {
      const std::int64_t line = begin_ + p * k_.shape.channels;
      for (std::int64_t c = first_; c < first_ + width; ++c) body(line + c, c);
    }
  }

  void reduce() {
    for_elements([&](std::int64_t i, std::int64_t c) {
      const double xh = xhat(i), a = value(k_.ddx, i, 0), u = value(k_.dy, i, 0);
      const double w = u * value(k_.gamma, c, 1), h = u * value(k_.ddgamma, c, 0);
      const std::array<double, Kinds> terms{a, w, h, a * xh, w * xh, h * xh, a * w};
      for (std::size_t kind = 0; kind < Kinds; ++kind) m_[kind] += terms[kind];
    });
    for (double& m : m_) m /= static_cast<double>(k_.shape.group_elements());
  }

  const Work<T>& k_;
  std::int64_t first_, begin_;
  double mean_, low_, r_;
  std::array<double, Kinds> m_{};
};

}  // namespace

template <class T>
void group_norm_double_backward(const GroupShape& shape, std::span<const T> x,
                                std::span<const T> dy, std::span<const T> gamma,
                                std::span<const T> stats, std::span<const T> ddx,
                                std::span<const T> ddgamma, std::span<const T> ddbeta,
                                std::span<T> ddy, std::span<T> dx2, std::span<T> dgamma2,
                                std::span<double> workspace) {
  const char* op = "group_norm_double_backward";
  GroupPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "dy", dy.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.channels, true);
  check_span(op, "stats", stats.size(), 3 * shape.samples * shape.groups, false);
  check_span(op, "ddx", ddx.size(), shape.elements(), true);
  check_span(op, "ddgamma", ddgamma.size(), shape.channels, true);
  check_span(op, "ddbeta", ddbeta.size(), shape.channels, true);
  check_span(op, "ddy", ddy.size(), shape.elements(), true);
  check_span(op, "dx2", dx2.size(), shape.elements(), true);
  check_span(op, "dgamma2", dgamma2.size(), shape.channels, true);
  check_span(op, "workspace", workspace.size(), group_norm_workspace(shape), false);
  const Work<T> work{shape,      x.data(),       dy.data(),     gamma.data(), stats.data(),
                     ddx.data(), ddgamma.data(), ddbeta.data(), ddy.data(),   dx2.data()};
  const std::int64_t task_samples = GroupPlan(shape).task_samples;
  parallel_for(shape.samples, task_samples, [&](std::int64_t begin, std::int64_t end) {
    double* partial = workspace.data() + begin / task_samples * shape.channels;
    std::fill_n(partial, shape.channels, 0.0);
    for (std::int64_t n = begin; n < end; ++n) {
      for (std::int64_t g = 0; g < shape.groups; ++g) Group<T>(work, n, g).run(partial);
    }
  });
  detail::merge_group_partials<T>(shape, workspace, 1, 0, dgamma2);
}

template void group_norm_double_backward(const GroupShape&, std::span<const float>,
                                         std::span<const float>, std::span<const float>,
                                         std::span<const float>, std::span<const float>,
                                         std::span<const float>, std::span<const float>,
                                         std::span<float>, std::span<float>, std::span<float>,
                                         std::span<double>);
template void group_norm_double_backward(const GroupShape&, std::span<const double>,
                                         std::span<const double>, std::span<const double>,
                                         std::span<const double>, std::span<const double>,
                                         std::span<const double>, std::span<const double>,
                                         std::span<double>, std::span<double>, std::span<double>,
                                         std::span<double>);

}  // namespace steady
