#include <cmath>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/layers/norm/layer_norm_kernel.hpp>

namespace steady {

using detail::check_span;
using detail::RowPlan;

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
  const auto width = static_cast<std::size_t>(shape.width);
  const auto affine = static_cast<std::size_t>(shape.affine);
  for (std::size_t r = 0; r < static_cast<std::size_t>(shape.rows); ++r) {
    const T* xr = x.data() + r * width;
    double mean = 0, var = 0;
    for (std::size_t i = 0; i < width; ++i) mean += double(xr[i]);
    mean /= double(width);
    for (std::size_t i = 0; i < width; ++i) var += (double(xr[i]) - mean) * (double(xr[i]) - mean);
    var /= double(width);
    const double rstd = 1.0 / std::sqrt(var + eps);
    for (std::size_t i = 0; i < width; ++i) {
      const double g = gamma.empty() ? 1.0 : double(gamma[i % affine]);
      const double b = beta.empty() ? 0.0 : double(beta[i % affine]);
      y[r * width + i] = T((double(xr[i]) - mean) * rstd * g + b);
    }
    if (!stats.empty()) {
      stats[3 * r] = T(mean);
      stats[3 * r + 1] = T(mean - double(T(mean)));
      stats[3 * r + 2] = T(rstd);
    }
  }
}

std::int64_t layer_norm_workspace(const RowShape& shape) { return RowPlan(shape).partials(2); }

template <class T>
void layer_norm_backward(const RowShape& shape, std::span<const T> x, std::span<const T> dy,
                         std::span<const T> gamma, std::span<const T> stats, std::span<T> dx,
                         std::span<T> dgamma, std::span<T> dbeta, std::span<T> workspace) {
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
  const auto width = static_cast<std::size_t>(shape.width);
  const auto affine = static_cast<std::size_t>(shape.affine);
  for (auto& v : dgamma) v = T(0);
  for (auto& v : dbeta) v = T(0);
  for (std::size_t r = 0; r < static_cast<std::size_t>(shape.rows); ++r) {
    const double mean = double(stats[3 * r]) + double(stats[3 * r + 1]);
    const double rstd = double(stats[3 * r + 2]);
    double s1 = 0, s2 = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const double u = double(dy[r * width + i]);
      const double xhat = (double(x[r * width + i]) - mean) * rstd;
      const double w = u * (gamma.empty() ? 1.0 : double(gamma[i % affine]));
      s1 += w;
      s2 += w * xhat;
      if (!dgamma.empty()) dgamma[i % affine] = T(double(dgamma[i % affine]) + u * xhat);
      if (!dbeta.empty()) dbeta[i % affine] = T(double(dbeta[i % affine]) + u);
    }
    for (std::size_t i = 0; i < dx.size() / static_cast<std::size_t>(shape.rows); ++i) {
      const double xhat = (double(x[r * width + i]) - mean) * rstd;
      const double w =
          double(dy[r * width + i]) * (gamma.empty() ? 1.0 : double(gamma[i % affine]));
      dx[r * width + i] = T(rstd * (w - s1 / double(width) - xhat * s2 / double(width)));
    }
  }
}

template <class T>
void layer_norm_double_backward(const RowShape& shape, std::span<const T> x, std::span<const T> dy,
                                std::span<const T> gamma, std::span<const T> stats,
                                std::span<const T> ddx, std::span<const T> ddgamma,
                                std::span<const T> ddbeta, std::span<T> ddy, std::span<T> dx2,
                                std::span<T> dgamma2, std::span<T> workspace) {
  const char* op = "layer_norm_double_backward";
  RowPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "dy", dy.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "stats", stats.size(), 3 * shape.rows, false);
  check_span(op, "ddx", ddx.size(), shape.elements(), true);
  check_span(op, "ddgamma", ddgamma.size(), shape.affine, true);
  check_span(op, "ddbeta", ddbeta.size(), shape.affine, true);
  check_span(op, "ddy", ddy.size(), shape.elements(), true);
  check_span(op, "dx2", dx2.size(), shape.elements(), true);
  check_span(op, "dgamma2", dgamma2.size(), shape.affine, true);
  check_span(op, "workspace", workspace.size(), layer_norm_workspace(shape), false);
  const auto width = static_cast<std::size_t>(shape.width);
  const auto affine = static_cast<std::size_t>(shape.affine);
  const double n = double(width);
  for (auto& v : dgamma2) v = T(0);
  for (std::size_t r = 0; r < static_cast<std::size_t>(shape.rows); ++r) {
    const double mean = double(stats[3 * r]) + double(stats[3 * r + 1]);
    const double rstd = double(stats[3 * r + 2]);
    auto at = [&](std::span<const T> s, std::size_t i) {
      return s.empty() ? 0.0 : double(s[r * width + i]);
    };
    auto gain = [&](std::size_t i) { return gamma.empty() ? 1.0 : double(gamma[i % affine]); };
    auto bg = [&](std::size_t i) { return ddgamma.empty() ? 0.0 : double(ddgamma[i % affine]); };
    auto bb = [&](std::size_t i) { return ddbeta.empty() ? 0.0 : double(ddbeta[i % affine]); };
    double a1 = 0, w1 = 0, h1 = 0, ax = 0, wx = 0, hx = 0, aw = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const double xhat = (double(x[r * width + i]) - mean) * rstd;
      const double u = double(dy[r * width + i]), a = at(ddx, i);
      const double w = u * gain(i), h = u * bg(i);
      a1 += a / n, w1 += w / n, h1 += h / n;
      ax += a * xhat / n, wx += w * xhat / n, hx += h * xhat / n, aw += a * w / n;
    }
    const double cov = aw - a1 * w1;
    for (std::size_t i = 0; i < width; ++i) {
      const double xhat = (double(x[r * width + i]) - mean) * rstd;
      const double u = double(dy[r * width + i]);
      const double pa = at(ddx, i) - a1 - xhat * ax;
      const double pw = u * gain(i) - w1 - xhat * wx;
      const double ph = u * bg(i) - h1 - xhat * hx;
      if (!ddy.empty()) ddy[r * width + i] = T(gain(i) * rstd * pa + bg(i) * xhat + bb(i));
      if (!dx2.empty()) {
        dx2[r * width + i] =
            T(rstd * ph - rstd * rstd * (xhat * (cov - ax * wx) + wx * pa + ax * pw));
      }
      if (!dgamma2.empty()) {
        dgamma2[i % affine] = T(double(dgamma2[i % affine]) + u * rstd * pa);
      }
    }
  }
}

#define STEADY_INSTANTIATE(T)                                                                   \
  template void layer_norm_forward<T>(const RowShape&, double, std::span<const T>,              \
                                      std::span<const T>, std::span<const T>, std::span<T>,     \
                                      std::span<T>);                                            \
  template void layer_norm_backward<T>(const RowShape&, std::span<const T>, std::span<const T>, \
                                       std::span<const T>, std::span<const T>, std::span<T>,    \
                                       std::span<T>, std::span<T>, std::span<T>);               \
  template void layer_norm_double_backward<T>(                                                  \
      const RowShape&, std::span<const T>, std::span<const T>, std::span<const T>,              \
      std::span<const T>, std::span<const T>, std::span<const T>, std::span<const T>,           \
      std::span<T>, std::span<T>, std::span<T>, std::span<T>);
STEADY_INSTANTIATE(float)
STEADY_INSTANTIATE(double)
#undef STEADY_INSTANTIATE

}  // namespace steady
