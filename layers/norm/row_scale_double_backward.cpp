#include <algorithm>
#include <steadygrad/layers/norm/row_blocks_kernel.hpp>
#include <steadygrad/layers/norm/row_scale_kernel.hpp>

// Derivative of the backward pass, one row; symbols as in row_scale_kernel.cpp. a and bg are the
// cotangents of dx = s * P(w) and dgamma = sum u * xhat; what is differentiated is
//   L = sum over rows of s * <a, P(w)> + <h, xhat>,   h = bg * u.
// With A = <a * k, xhat>, G = <w, xhat>:  <a, P(w)> = <a, w> - l * A * G, and with the transpose
// Q(v) = v - l * xhat * <k * xhat, v> of P
//   dL/du     = gamma * s * Q(a) + bg * xhat
//   dL/dgamma = sum over rows of u * s * Q(a).
// x enters through s, ds = -l * s^2 * <k * xhat, dx>, and through xhat, d<v, xhat> = s * P(v) dx:
//   dL/dx = s * P(h) - l * s^2 * (k * xhat * (<a, w> - l * A * G) + G * P(a * k) + A * P(w)).

namespace steady {

using detail::check_span;
using detail::RowPlan;

namespace {

template <class T>
struct Work {
  RowShape shape;
  std::int64_t period, counted;
  const T *x, *dy, *gamma, *stats, *ddx, *ddgamma;  // gamma, ddx and ddgamma may be null
  T *ddy, *dx2;                                     // may be null

  // Element i of all, and element `at` of the period, in double.
  [[nodiscard]] double a(std::int64_t i) const { return ddx ? static_cast<double>(ddx[i]) : 0.0; }
  [[nodiscard]] double u(std::int64_t i) const { return static_cast<double>(dy[i]); }
  [[nodiscard]] double gain(std::int64_t at) const {
    return gamma ? static_cast<double>(gamma[at % shape.affine]) : 1.0;
  }
  [[nodiscard]] double bg(std::int64_t at) const {
    return ddgamma ? static_cast<double>(ddgamma[at % shape.affine]) : 0.0;
  }
};

/// body(element of all, element of the period, k) for the elements of a row.
template <class T, class Body>
void for_elements(const Work<T>& work, std::int64_t row, Body body) {
  const std::int64_t width = work.shape.width;
  for (std::int64_t base = 0; base < width; base += work.period) {
    for (std::int64_t at = 0; at < std::min(work.period, width - base); ++at) {
      body(row * width + base + at, at, base + at < work.counted ? 1.0 : 0.0);
    }
  }
}

template <class T>
void double_backward_row(const Work<T>& work, std::int64_t row, T* dgamma2) {
  const double s = static_cast<double>(work.stats[2 * row]);
  const double l = static_cast<double>(work.stats[2 * row + 1]);
  auto xhat = [&](std::int64_t i) { return static_cast<double>(work.x[i]) * s; };
  double akx = 0, wx = 0, hx = 0, aw = 0;
  for_elements(work, row, [&](std::int64_t i, std::int64_t at, double k) {
    const double w = work.u(i) * work.gain(at);
    akx += work.a(i) * k * xhat(i);
    wx += w * xhat(i);
    hx += work.u(i) * work.bg(at) * xhat(i);
    aw += work.a(i) * w;
  });
  const double whole = aw - l * akx * wx;
  for_elements(work, row, [&](std::int64_t i, std::int64_t at, double k) {
    const double xh = xhat(i);
    const double qa = work.a(i) - l * xh * akx;
    if (work.ddy) work.ddy[i] = static_cast<T>(work.gain(at) * s * qa + work.bg(at) * xh);
    if (dgamma2) dgamma2[at] += static_cast<T>(work.u(i) * s * qa);
    if (!work.dx2) return;
    const double pull = l * k * xh;
    const double pak = work.a(i) * k - pull * akx;
    const double pw = work.u(i) * work.gain(at) - pull * wx;
    const double ph = work.u(i) * work.bg(at) - pull * hx;
    work.dx2[i] = static_cast<T>(s * ph - l * s * s * (k * xh * whole + wx * pak + akx * pw));
  });
}

}  // namespace

template <class T>
void row_scale_double_backward(const RowShape& shape, std::int64_t counted, std::span<const T> x,
                               std::span<const T> dy, std::span<const T> gamma,
                               std::span<const T> stats, std::span<const T> ddx,
                               std::span<const T> ddgamma, std::span<T> ddy, std::span<T> dx2,
                               std::span<T> dgamma2, std::span<T> workspace) {
  const char* op = "row_scale_double_backward";
  RowPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "dy", dy.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "stats", stats.size(), 2 * shape.rows, false);
  check_span(op, "ddx", ddx.size(), shape.elements(), true);
  check_span(op, "ddgamma", ddgamma.size(), shape.affine, true);
  check_span(op, "ddy", ddy.size(), shape.elements(), true);
  check_span(op, "dx2", dx2.size(), shape.elements(), true);
  check_span(op, "dgamma2", dgamma2.size(), shape.affine, true);
  check_span(op, "workspace", workspace.size(), row_scale_workspace(shape), false);
  const RowPlan plan(shape);
  const Work<T> work{shape,        plan.period, counted,        x.data(),   dy.data(), gamma.data(),
                     stats.data(), ddx.data(),  ddgamma.data(), ddy.data(), dx2.data()};
  detail::for_row_blocks(plan, shape.rows, dgamma2.empty() ? nullptr : workspace.data(),
                         plan.period,
                         [&](std::int64_t, std::int64_t begin, std::int64_t end, T* partial) {
                           for (std::int64_t row = begin; row < end; ++row) {
                             double_backward_row(work, row, partial);
                           }
                         });
  if (!dgamma2.empty()) detail::merge_partials(shape, workspace.data(), 1, 0, dgamma2);
}

template void row_scale_double_backward(const RowShape&, std::int64_t, std::span<const float>,
                                        std::span<const float>, std::span<const float>,
                                        std::span<const float>, std::span<const float>,
                                        std::span<const float>, std::span<float>, std::span<float>,
                                        std::span<float>, std::span<float>);
template void row_scale_double_backward(const RowShape&, std::int64_t, std::span<const double>,
                                        std::span<const double>, std::span<const double>,
                                        std::span<const double>, std::span<const double>,
                                        std::span<const double>, std::span<double>,
                                        std::span<double>, std::span<double>, std::span<double>);

}  // namespace steady
