#include <algorithm>
#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/batch_norm_kernel.hpp>
#include <steadygrad/layers/norm/row_stats.hpp>
#include <vector>

namespace steady {

using detail::check_span;

template <class T>
void batch_norm_stats(std::span<const Moments> moments, double eps, std::span<T> stats) {
  const std::size_t channels = moments.size();
  check_span("batch_norm_stats", "stats", stats.size(), 3 * static_cast<std::int64_t>(channels),
             false);
  for (std::size_t c = 0; c < channels; ++c) {
    stats[c] = T(moments[c].mean);
    stats[channels + c] = T(moments[c].mean - double(stats[c]));
    stats[2 * channels + c] = T(1.0 / std::sqrt(moments[c].variance() + eps));
  }
}

template <class T>
void batch_norm_running_stats(std::span<const T> running_mean, std::span<const T> running_var,
                              double eps, std::span<T> stats) {
  const char* op = "batch_norm_running_stats";
  const std::size_t channels = running_mean.size();
  check_span(op, "running_var", running_var.size(), static_cast<std::int64_t>(channels), false);
  check_span(op, "stats", stats.size(), 3 * static_cast<std::int64_t>(channels), false);
  for (std::size_t c = 0; c < channels; ++c) {
    stats[c] = running_mean[c];
    stats[channels + c] = T(0);
    stats[2 * channels + c] = T(1.0 / std::sqrt(double(running_var[c]) + eps));
  }
}

template <class T>
void batch_norm_apply(const ColumnShape& shape, std::span<const T> x, std::span<const T> gamma,
                      std::span<const T> beta, std::span<const T> stats, std::span<T> y) {
  const char* op = "batch_norm_apply";
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.channels, true);
  check_span(op, "beta", beta.size(), shape.channels, true);
  check_span(op, "stats", stats.size(), 3 * shape.channels, false);
  check_span(op, "y", y.size(), shape.elements(), false);
  const auto channels = static_cast<std::size_t>(shape.channels);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % channels;
    const double xhat = ((double(x[i]) - double(stats[c])) - double(stats[channels + c])) *
                        double(stats[2 * channels + c]);
    y[i] =
        T(xhat * (gamma.empty() ? 1.0 : double(gamma[c])) + (beta.empty() ? 0.0 : double(beta[c])));
  }
}

template <class T>
void batch_norm_forward(const ColumnShape& shape, double eps, std::span<const T> x,
                        std::span<const T> gamma, std::span<const T> beta, std::span<T> y,
                        std::span<Moments> moments, std::span<T> stats,
                        std::span<double> workspace) {
  check_span("batch_norm_forward", "y", y.size(), shape.elements(), false);
  column_moments<T>(shape, x, moments, workspace);
  batch_norm_stats<T>(moments, eps, stats);
  batch_norm_apply<T>(shape, x, gamma, beta, stats, y);
}

template <class T>
void batch_norm_running_update(std::span<const Moments> moments, double momentum,
                               std::span<const T> running_mean, std::span<const T> running_var,
                               std::span<T> new_mean, std::span<T> new_var) {
  const char* op = "batch_norm_running_update";
  const auto channels = static_cast<std::int64_t>(moments.size());
  check_span(op, "running_mean", running_mean.size(), channels, false);
  check_span(op, "running_var", running_var.size(), channels, false);
  check_span(op, "new_mean", new_mean.size(), channels, false);
  check_span(op, "new_var", new_var.size(), channels, false);
  STEADY_CHECK(Error, momentum >= 0 && momentum <= 1,
               "{}: momentum, the weight of the new batch, lies in [0, 1]; got {}", op, momentum);
  for (const Moments& m : moments) {
    STEADY_CHECK(Error, m.n >= 2,
                 "{}: an unbiased variance needs at least two values per channel; got {}", op, m.n);
  }
  for (std::size_t c = 0; c < moments.size(); ++c) {
    new_mean[c] = T((1 - momentum) * double(running_mean[c]) + momentum * moments[c].mean);
    new_var[c] =
        T((1 - momentum) * double(running_var[c]) + momentum * moments[c].unbiased_variance());
  }
}

template <class T>
void batch_norm_backward_sums(const ColumnShape& shape, std::span<const T> x, std::span<const T> dy,
                              std::span<const T> stats, std::span<double> s1, std::span<double> s2,
                              std::span<double> workspace) {
  const char* op = "batch_norm_backward_sums";
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "dy", dy.size(), shape.elements(), false);
  check_span(op, "stats", stats.size(), 3 * shape.channels, false);
  check_span(op, "s1", s1.size(), shape.channels, false);
  check_span(op, "s2", s2.size(), shape.channels, false);
  check_span(op, "workspace", workspace.size(), column_workspace(shape), false);
  const auto channels = static_cast<std::size_t>(shape.channels);
  std::fill(s1.begin(), s1.end(), 0.0);
  std::fill(s2.begin(), s2.end(), 0.0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % channels;
    s1[c] += double(dy[i]);
    s2[c] += double(dy[i]) * ((double(x[i]) - double(stats[c])) - double(stats[channels + c]));
  }
}

template <class T>
void batch_norm_backward_input(const ColumnShape& shape, double count, std::span<const T> x,
                               std::span<const T> dy, std::span<const T> gamma,
                               std::span<const T> stats, std::span<const double> s1,
                               std::span<const double> s2, std::span<T> dx) {
  const char* op = "batch_norm_backward_input";
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "dy", dy.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.channels, true);
  check_span(op, "stats", stats.size(), 3 * shape.channels, false);
  check_span(op, "s1", s1.size(), shape.channels, false);
  check_span(op, "s2", s2.size(), shape.channels, false);
  check_span(op, "dx", dx.size(), shape.elements(), false);
  const auto channels = static_cast<std::size_t>(shape.channels);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % channels;
    const double r = double(stats[2 * channels + c]);
    const double xc = (double(x[i]) - double(stats[c])) - double(stats[channels + c]);
    dx[i] = T((gamma.empty() ? 1.0 : double(gamma[c])) * r *
              (double(dy[i]) - s1[c] / count - xc * r * r * s2[c] / count));
  }
}

namespace {

template <class T>
void parameter_gradients(std::span<const T> stats, std::span<const double> s1,
                         std::span<const double> s2, std::span<T> dgamma, std::span<T> dbeta) {
  for (std::size_t c = 0; c < dgamma.size(); ++c) {
    dgamma[c] = T(s2[c] * double(stats[2 * s1.size() + c]));
  }
  for (std::size_t c = 0; c < dbeta.size(); ++c) dbeta[c] = T(s1[c]);
}

}  // namespace

template <class T>
void batch_norm_backward(const ColumnShape& shape, std::span<const T> x, std::span<const T> dy,
                         std::span<const T> gamma, std::span<const T> stats, std::span<T> dx,
                         std::span<T> dgamma, std::span<T> dbeta, std::span<double> workspace) {
  const char* op = "batch_norm_backward";
  check_span(op, "dx", dx.size(), shape.elements(), true);
  check_span(op, "dgamma", dgamma.size(), shape.channels, true);
  check_span(op, "dbeta", dbeta.size(), shape.channels, true);
  check_span(op, "workspace", workspace.size(), column_workspace(shape), false);
  const auto channels = static_cast<std::size_t>(shape.channels);
  (void)gamma;
  std::vector<double> s1(channels), s2(channels);
  batch_norm_backward_sums<T>(shape, x, dy, stats, s1, s2, workspace);
  parameter_gradients<T>(stats, s1, s2, dgamma, dbeta);
  if (!dx.empty()) {
    batch_norm_backward_input<T>(shape, double(shape.rows), x, dy, gamma, stats, s1, s2, dx);
  }
}

template <class T>
void batch_norm_backward_frozen(const ColumnShape& shape, std::span<const T> x,
                                std::span<const T> dy, std::span<const T> gamma,
                                std::span<const T> stats, std::span<T> dx, std::span<T> dgamma,
                                std::span<T> dbeta, std::span<double> workspace) {
  const char* op = "batch_norm_backward_frozen";
  check_span(op, "dx", dx.size(), shape.elements(), true);
  check_span(op, "dgamma", dgamma.size(), shape.channels, true);
  check_span(op, "dbeta", dbeta.size(), shape.channels, true);
  const auto channels = static_cast<std::size_t>(shape.channels);
  std::vector<double> s1(channels), s2(channels);
  batch_norm_backward_sums<T>(shape, x, dy, stats, s1, s2, workspace);
  parameter_gradients<T>(stats, s1, s2, dgamma, dbeta);
  std::fill(s1.begin(), s1.end(), 0.0);
  std::fill(s2.begin(), s2.end(), 0.0);
  if (!dx.empty()) batch_norm_backward_input<T>(shape, 1.0, x, dy, gamma, stats, s1, s2, dx);
}

namespace {

template <class T, bool kFrozen>
void double_backward(const ColumnShape& shape, std::span<const T> x, std::span<const T> dy,
                     std::span<const T> gamma, std::span<const T> stats, std::span<const T> ddx,
                     std::span<const T> ddgamma, std::span<const T> ddbeta, std::span<T> ddy,
                     std::span<T> dx2, std::span<T> dgamma2) {
  const auto channels = static_cast<std::size_t>(shape.channels);
  const double count = double(shape.rows);
  for (std::size_t c = 0; c < channels; ++c) {
    const double r = double(stats[2 * channels + c]);
    const double g = gamma.empty() ? 1.0 : double(gamma[c]);
    const double bg = ddgamma.empty() ? 0.0 : double(ddgamma[c]);
    const double bb = ddbeta.empty() ? 0.0 : double(ddbeta[c]);
    auto xhat = [&](std::size_t i) {
      return ((double(x[i]) - double(stats[c])) - double(stats[channels + c])) * r;
    };
    auto at = [&](std::size_t i) { return ddx.empty() ? 0.0 : double(ddx[i]); };
    double a1 = 0, u1 = 0, ax = 0, ux = 0, au = 0;
    for (std::size_t i = c; i < x.size(); i += channels) {
      a1 += at(i), u1 += double(dy[i]), ax += at(i) * xhat(i), ux += double(dy[i]) * xhat(i);
      au += at(i) * double(dy[i]);
    }
    const double sum_au = au;
    a1 /= count, u1 /= count, ax /= count, ux /= count, au /= count;
    if (kFrozen) a1 = u1 = ax = ux = 0;
    const double cov = kFrozen ? 0 : au - a1 * u1 - ax * ux;
    for (std::size_t i = c; i < x.size(); i += channels) {
      const double pa = at(i) - a1 - xhat(i) * ax;
      const double pu = double(dy[i]) - u1 - xhat(i) * ux;
      if (!ddy.empty()) ddy[i] = T(g * r * pa + bg * xhat(i) + bb);
      if (!dx2.empty()) {
        dx2[i] = T(bg * r * pu - g * r * r * (xhat(i) * cov + ux * pa + ax * pu));
      }
    }
    if (!dgamma2.empty()) dgamma2[c] = T(r * (kFrozen ? sum_au : count * cov));
  }
}

}  // namespace

template <class T>
void batch_norm_double_backward(const ColumnShape& shape, std::span<const T> x,
                                std::span<const T> dy, std::span<const T> gamma,
                                std::span<const T> stats, std::span<const T> ddx,
                                std::span<const T> ddgamma, std::span<const T> ddbeta,
                                std::span<T> ddy, std::span<T> dx2, std::span<T> dgamma2,
                                std::span<double> /*workspace*/) {
  double_backward<T, false>(shape, x, dy, gamma, stats, ddx, ddgamma, ddbeta, ddy, dx2, dgamma2);
}

template <class T>
void batch_norm_double_backward_frozen(const ColumnShape& shape, std::span<const T> x,
                                       std::span<const T> dy, std::span<const T> gamma,
                                       std::span<const T> stats, std::span<const T> ddx,
                                       std::span<const T> ddgamma, std::span<const T> ddbeta,
                                       std::span<T> ddy, std::span<T> dx2, std::span<T> dgamma2,
                                       std::span<double> /*workspace*/) {
  double_backward<T, true>(shape, x, dy, gamma, stats, ddx, ddgamma, ddbeta, ddy, dx2, dgamma2);
}

#define STEADY_INSTANTIATE(T)                                                                      \
  template void batch_norm_stats<T>(std::span<const Moments>, double, std::span<T>);               \
  template void batch_norm_running_stats<T>(std::span<const T>, std::span<const T>, double,        \
                                            std::span<T>);                                         \
  template void batch_norm_apply<T>(const ColumnShape&, std::span<const T>, std::span<const T>,    \
                                    std::span<const T>, std::span<const T>, std::span<T>);         \
  template void batch_norm_forward<T>(const ColumnShape&, double, std::span<const T>,              \
                                      std::span<const T>, std::span<const T>, std::span<T>,        \
                                      std::span<Moments>, std::span<T>, std::span<double>);        \
  template void batch_norm_running_update<T>(std::span<const Moments>, double, std::span<const T>, \
                                             std::span<const T>, std::span<T>, std::span<T>);      \
  template void batch_norm_backward_sums<T>(                                                       \
      const ColumnShape&, std::span<const T>, std::span<const T>, std::span<const T>,              \
      std::span<double>, std::span<double>, std::span<double>);                                    \
  template void batch_norm_backward_input<T>(                                                      \
      const ColumnShape&, double, std::span<const T>, std::span<const T>, std::span<const T>,      \
      std::span<const T>, std::span<const double>, std::span<const double>, std::span<T>);         \
  template void batch_norm_backward<T>(const ColumnShape&, std::span<const T>, std::span<const T>, \
                                       std::span<const T>, std::span<const T>, std::span<T>,       \
                                       std::span<T>, std::span<T>, std::span<double>);             \
  template void batch_norm_backward_frozen<T>(                                                     \
      const ColumnShape&, std::span<const T>, std::span<const T>, std::span<const T>,              \
      std::span<const T>, std::span<T>, std::span<T>, std::span<T>, std::span<double>);            \
  template void batch_norm_double_backward<T>(                                                     \
      const ColumnShape&, std::span<const T>, std::span<const T>, std::span<const T>,              \
      std::span<const T>, std::span<const T>, std::span<const T>, std::span<const T>,              \
      std::span<T>, std::span<T>, std::span<T>, std::span<double>);                                \
  template void batch_norm_double_backward_frozen<T>(                                              \
      const ColumnShape&, std::span<const T>, std::span<const T>, std::span<const T>,              \
      std::span<const T>, std::span<const T>, std::span<const T>, std::span<const T>,              \
      std::span<T>, std::span<T>, std::span<T>, std::span<double>);
STEADY_INSTANTIATE(float)
STEADY_INSTANTIATE(double)
#undef STEADY_INSTANTIATE

}  // namespace steady
