#include <algorithm>
#include <steadygrad/layers/norm/layer_norm_kernel.hpp>
#include <steadygrad/layers/norm/row_blocks_kernel.hpp>

// Derivative of the backward pass, one row of D elements; m(.) is the mean over the row, u = dy,
// w = gamma * u, xhat = (x - mean) * r, and P(v) = v - m(v) - xhat * m(v * xhat) as in
// layer_norm_kernel.cpp. a, bg, bb are the cotangents of dx = r * P(w), dgamma = sum u * xhat and
// dbeta = sum u; what is differentiated is the scalar
//   L = sum over rows of D * (r * m(a * P(w)) + m(h * xhat) + m(bb * u)),   h = bg * u.
// P is symmetric, so with A = m(a * xhat), G = m(w * xhat), cov = m(a * w) - m(a) * m(w):
//   m(a * P(w)) = cov - A * G,
//   dL/du     = gamma * r * P(a) + bg * xhat + bb
//   dL/dgamma = sum over rows of u * r * P(a).
// x enters through r, dr = -r^2 * m(xhat * dx), and through xhat, dxhat = r * P(dx):
//   dL/dx = r * P(h) - r^2 * (xhat * (cov - A * G) + G * P(a) + A * P(w)).

namespace steady {

using detail::check_span;
using detail::RowPlan;

namespace {

template <class T>
struct Work {
  RowShape shape;
  const T *x, *dy, *gamma, *stats, *ddx, *ddgamma, *ddbeta;  // from gamma on, each may be null
  T *ddy, *dx2;                                              // may be null

  // Element i of a row, c = i % affine, in double.
  [[nodiscard]] double a(std::int64_t i) const { return ddx ? static_cast<double>(ddx[i]) : 0.0; }
  [[nodiscard]] double u(std::int64_t i) const { return static_cast<double>(dy[i]); }
  [[nodiscard]] double gain(std::int64_t c) const {
    return gamma ? static_cast<double>(gamma[c]) : 1.0;
  }
  [[nodiscard]] double bg(std::int64_t c) const {
    return ddgamma ? static_cast<double>(ddgamma[c]) : 0.0;
  }
  [[nodiscard]] double bb(std::int64_t c) const {
    return ddbeta ? static_cast<double>(ddbeta[c]) : 0.0;
  }
};

template <class Body>
void for_elements(const RowShape& shape, std::int64_t row, Body body) {
  for (std::int64_t i = row * shape.width; i < (row + 1) * shape.width; i += shape.affine) {
    for (std::int64_t c = 0; c < shape.affine; ++c) body(i + c, c);
  }
}

template <class T>
void double_backward_row(const Work<T>& k, std::int64_t row, T* dgamma2) {
  const double mean = static_cast<double>(k.stats[3 * row]);
  const double low = static_cast<double>(k.stats[3 * row + 1]);
  const double r = static_cast<double>(k.stats[3 * row + 2]);
  auto xhat = [&](std::int64_t i) { return ((static_cast<double>(k.x[i]) - mean) - low) * r; };
  double ma = 0, mw = 0, mh = 0, max = 0, mwx = 0, mhx = 0, maw = 0;
  for_elements(k.shape, row, [&](std::int64_t i, std::int64_t c) {
    const double w = k.u(i) * k.gain(c), h = k.u(i) * k.bg(c);
    ma += k.a(i);
    mw += w;
    mh += h;
    max += k.a(i) * xhat(i);
    mwx += w * xhat(i);
    mhx += h * xhat(i);
    maw += k.a(i) * w;
  });
  for (double* m : {&ma, &mw, &mh, &max, &mwx, &mhx, &maw})
    *m /= static_cast<double>(k.shape.width);
  const double scale = maw - ma * mw - max * mwx;
  for_elements(k.shape, row, [&](std::int64_t i, std::int64_t c) {
    const double pa = k.a(i) - ma - xhat(i) * max;
    const double pw = k.u(i) * k.gain(c) - mw - xhat(i) * mwx;
    const double ph = k.u(i) * k.bg(c) - mh - xhat(i) * mhx;
    if (k.ddy) k.ddy[i] = static_cast<T>(k.gain(c) * r * pa + k.bg(c) * xhat(i) + k.bb(c));
    if (k.dx2) {
      k.dx2[i] = static_cast<T>(r * ph - r * r * (xhat(i) * scale + mwx * pa + max * pw));
    }
    if (dgamma2) dgamma2[c] += static_cast<T>(k.u(i) * r * pa);
  });
}

}  // namespace

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
  const RowPlan plan(shape);
  const Work<T> work{shape,      x.data(),       dy.data(),     gamma.data(), stats.data(),
                     ddx.data(), ddgamma.data(), ddbeta.data(), ddy.data(),   dx2.data()};
  detail::for_row_blocks(plan, shape.rows, dgamma2.empty() ? nullptr : workspace.data(),
                         plan.period,
                         [&](std::int64_t, std::int64_t begin, std::int64_t end, T* partial) {
                           for (std::int64_t row = begin; row < end; ++row) {
                             double_backward_row(work, row, partial);
                           }
                         });
  if (!dgamma2.empty()) detail::merge_partials(shape, workspace.data(), 1, 0, dgamma2);
}

template void layer_norm_double_backward(const RowShape&, std::span<const float>,
                                         std::span<const float>, std::span<const float>,
                                         std::span<const float>, std::span<const float>,
                                         std::span<const float>, std::span<const float>,
                                         std::span<float>, std::span<float>, std::span<float>,
                                         std::span<float>);
template void layer_norm_double_backward(const RowShape&, std::span<const double>,
                                         std::span<const double>, std::span<const double>,
                                         std::span<const double>, std::span<const double>,
                                         std::span<const double>, std::span<const double>,
                                         std::span<double>, std::span<double>, std::span<double>,
                                         std::span<double>);

}  // namespace steady
