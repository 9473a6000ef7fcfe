#include <cmath>
#include <steadygrad/layers/norm/rms_norm_kernel.hpp>

namespace steady {

using detail::check_span;
using detail::RowPlan;

template <class T>
void rms_norm_forward(const RowShape& shape, double eps, bool unit_offset, std::span<const T> x,
                      std::span<const T> gamma, std::span<T> y, std::span<T> stats) {
  const char* op = "rms_norm_forward";
  RowPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "y", y.size(), shape.elements(), false);
  check_span(op, "stats", stats.size(), shape.rows, true);
  const auto width = static_cast<std::size_t>(shape.width);
  const auto affine = static_cast<std::size_t>(shape.affine);
  const double offset = unit_offset ? 1.0 : 0.0;
  for (std::size_t r = 0; r < static_cast<std::size_t>(shape.rows); ++r) {
    const T* xr = x.data() + r * width;
    double square = 0;
    for (std::size_t i = 0; i < width; ++i) square += double(xr[i]) * double(xr[i]);
    const double rstd = 1.0 / std::sqrt(square / double(width) + eps);
    for (std::size_t i = 0; i < width; ++i) {
      const double g = gamma.empty() ? 1.0 : offset + double(gamma[i % affine]);
      y[r * width + i] = T(double(xr[i]) * rstd * g);
    }
    if (!stats.empty()) stats[r] = T(rstd);
  }
}

std::int64_t rms_norm_workspace(const RowShape& shape) { return RowPlan(shape).partials(1); }

template <class T>
void rms_norm_backward(const RowShape& shape, bool unit_offset, std::span<const T> x,
                       std::span<const T> dy, std::span<const T> gamma, std::span<const T> stats,
                       std::span<T> dx, std::span<T> dgamma, std::span<T> workspace) {
  const char* op = "rms_norm_backward";
  RowPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "dy", dy.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "stats", stats.size(), shape.rows, false);
  check_span(op, "dx", dx.size(), shape.elements(), true);
  check_span(op, "dgamma", dgamma.size(), shape.affine, true);
  check_span(op, "workspace", workspace.size(), rms_norm_workspace(shape), false);
  const auto width = static_cast<std::size_t>(shape.width);
  const auto affine = static_cast<std::size_t>(shape.affine);
  const double offset = unit_offset ? 1.0 : 0.0;
  for (auto& v : dgamma) v = T(0);
  for (std::size_t r = 0; r < static_cast<std::size_t>(shape.rows); ++r) {
    const double rstd = double(stats[r]);
    double s2 = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const double u = double(dy[r * width + i]);
      const double xhat = double(x[r * width + i]) * rstd;
      s2 += u * (gamma.empty() ? 1.0 : offset + double(gamma[i % affine])) * xhat;
      if (!dgamma.empty()) dgamma[i % affine] = T(double(dgamma[i % affine]) + u * xhat);
    }
    for (std::size_t i = 0; i < dx.size() / static_cast<std::size_t>(shape.rows); ++i) {
      const double xhat = double(x[r * width + i]) * rstd;
      const double w =
          double(dy[r * width + i]) * (gamma.empty() ? 1.0 : offset + double(gamma[i % affine]));
      dx[r * width + i] = T(rstd * (w - xhat * s2 / double(width)));
    }
  }
}

template <class T>
void rms_norm_double_backward(const RowShape& shape, bool unit_offset, std::span<const T> x,
                              std::span<const T> dy, std::span<const T> gamma,
                              std::span<const T> stats, std::span<const T> ddx,
                              std::span<const T> ddgamma, std::span<T> ddy, std::span<T> dx2,
                              std::span<T> dgamma2, std::span<T> workspace) {
  const char* op = "rms_norm_double_backward";
  RowPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "dy", dy.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "stats", stats.size(), shape.rows, false);
  check_span(op, "ddx", ddx.size(), shape.elements(), true);
  check_span(op, "ddgamma", ddgamma.size(), shape.affine, true);
  check_span(op, "ddy", ddy.size(), shape.elements(), true);
  check_span(op, "dx2", dx2.size(), shape.elements(), true);
  check_span(op, "dgamma2", dgamma2.size(), shape.affine, true);
  check_span(op, "workspace", workspace.size(), rms_norm_workspace(shape), false);
  const auto width = static_cast<std::size_t>(shape.width);
  const auto affine = static_cast<std::size_t>(shape.affine);
  const double n = double(width);
  const double offset = unit_offset ? 1.0 : 0.0;
  for (auto& v : dgamma2) v = T(0);
  for (std::size_t r = 0; r < static_cast<std::size_t>(shape.rows); ++r) {
    const double rstd = double(stats[r]);
    auto at = [&](std::span<const T> s, std::size_t i) {
      return s.empty() ? 0.0 : double(s[r * width + i]);
    };
    auto gain = [&](std::size_t i) {
      return gamma.empty() ? 1.0 : offset + double(gamma[i % affine]);
    };
    auto bg = [&](std::size_t i) { return ddgamma.empty() ? 0.0 : double(ddgamma[i % affine]); };
    double ax = 0, wx = 0, hx = 0, aw = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const double xhat = double(x[r * width + i]) * rstd;
      const double u = double(dy[r * width + i]), a = at(ddx, i);
      const double w = u * gain(i), h = u * bg(i);
      ax += a * xhat / n, wx += w * xhat / n, hx += h * xhat / n, aw += a * w / n;
    }
    for (std::size_t i = 0; i < width; ++i) {
      const double xhat = double(x[r * width + i]) * rstd;
      const double u = double(dy[r * width + i]);
      const double pa = at(ddx, i) - xhat * ax;
      const double pw = u * gain(i) - xhat * wx;
      const double ph = u * bg(i) - xhat * hx;
      if (!ddy.empty()) ddy[r * width + i] = T(gain(i) * rstd * pa + bg(i) * xhat);
      if (!dx2.empty()) {
        dx2[r * width + i] =
            T(rstd * ph - rstd * rstd * (xhat * (aw - ax * wx) + wx * pa + ax * pw));
      }
      if (!dgamma2.empty()) {
        dgamma2[i % affine] = T(double(dgamma2[i % affine]) + u * rstd * pa);
      }
    }
  }
}

#define STEADY_INSTANTIATE(T)                                                                    \
  template void rms_norm_forward<T>(const RowShape&, double, bool, std::span<const T>,           \
                                    std::span<const T>, std::span<T>, std::span<T>);             \
  template void rms_norm_backward<T>(const RowShape&, bool, std::span<const T>,                  \
                                     std::span<const T>, std::span<const T>, std::span<const T>, \
                                     std::span<T>, std::span<T>, std::span<T>);                  \
  template void rms_norm_double_backward<T>(                                                     \
      const RowShape&, bool, std::span<const T>, std::span<const T>, std::span<const T>,         \
      std::span<const T>, std::span<const T>, std::span<const T>, std::span<T>, std::span<T>,    \
      std::span<T>, std::span<T>);
STEADY_INSTANTIATE(float)
STEADY_INSTANTIATE(double)
#undef STEADY_INSTANTIATE

}  // namespace steady
