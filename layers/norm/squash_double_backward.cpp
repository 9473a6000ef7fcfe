#include <algorithm>
#include <cmath>
#include <steadygrad/layers/norm/row_blocks_kernel.hpp>
#include <steadygrad/layers/norm/squash_kernel.hpp>
#include <vector>

// Derivative of the backward pass, element by element; symbols as in squash_kernel.cpp, g = gamma.
// a, A, S, bg and bb are the cotangents of dx, dalpha, dshift, dgamma and dbeta; what is
// differentiated is
//   L = sum of u * g * f' * t + u * (bg * f + bb),   t = alpha * a + A * x + S.
// Hence, with f'' = -2 f f' for tanh and -2 z f' for erf,
//   dL/du     = g * f' * t + bg * f + bb
//   dL/dg     = sum over rows of u * f' * t
//   dL/dz     = e = u * (g * f'' * t + bg * f'), through which x, alpha and shift enter:
//   dL/dx     = alpha * e + A * u * g * f'
//   dL/dalpha = sum of x * e + a * u * g * f'
//   dL/dshift = sum of e.

namespace steady {

using detail::check_span;
using detail::RowPlan;

namespace {

template <class T>
struct Work {
  RowShape shape;
  SquashCurve<T> curve;
  const T *x, *dy, *gamma;
  SquashCotangents<T> cotangents;
  SquashSecond<T> out;
};

struct Scalars {
  double dalpha = 0;
  double dshift = 0;
};

double at(const auto& span, std::int64_t i) {
  return span.empty() ? 0.0 : static_cast<double>(span[static_cast<std::size_t>(i)]);
}

template <class T>
void double_backward_row(const Work<T>& k, std::int64_t row, T* dgamma2, Scalars& sums) {
  const auto [rows, width, affine] = k.shape;
  const double alpha = static_cast<double>(k.curve.alpha);
  const double shift = static_cast<double>(k.curve.shift);
  const double to_alpha = at(k.cotangents.dalpha, 0), to_shift = at(k.cotangents.dshift, 0);
  for (std::int64_t i = 0; i < width; ++i) {
    const std::int64_t j = row * width + i, c = i % affine;
    const double x = static_cast<double>(k.x[j]), u = static_cast<double>(k.dy[j]);
    const double g = k.gamma == nullptr ? 1.0 : static_cast<double>(k.gamma[c]);
    const double a = at(k.cotangents.dx, j), bg = at(k.cotangents.dgamma, c);
    const double z = alpha * x + shift;
    const double f = k.curve.f == Squash::Tanh ? std::tanh(z) : std::erf(z);
    const double first = detail::squash_slope(k.curve.f, z);
    const double second = -2 * (k.curve.f == Squash::Tanh ? f : z) * first;
    const double t = alpha * a + to_alpha * x + to_shift;
    const double e = u * (g * second * t + bg * first);
    const auto to = static_cast<std::size_t>(j);
    if (!k.out.ddy.empty()) {
      k.out.ddy[to] = static_cast<T>(g * first * t + bg * f + at(k.cotangents.dbeta, c));
    }
    if (!k.out.dx2.empty()) k.out.dx2[to] = static_cast<T>(alpha * e + to_alpha * u * g * first);
    if (dgamma2 != nullptr) dgamma2[c] += static_cast<T>(u * first * t);
    sums.dalpha += x * e + a * u * g * first;
    sums.dshift += e;
  }
}

}  // namespace

template <class T>
void squash_double_backward(const RowShape& shape, const SquashCurve<T>& curve,
                            std::span<const T> x, std::span<const T> dy, std::span<const T> gamma,
                            const SquashCotangents<T>& cotangents, const SquashSecond<T>& out,
                            std::span<T> workspace) {
  const char* op = "squash_double_backward";
  RowPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "dy", dy.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.affine, true);
  check_span(op, "ddx", cotangents.dx.size(), shape.elements(), true);
  check_span(op, "ddgamma", cotangents.dgamma.size(), shape.affine, true);
  check_span(op, "ddbeta", cotangents.dbeta.size(), shape.affine, true);
  check_span(op, "ddalpha", cotangents.dalpha.size(), 1, true);
  check_span(op, "ddshift", cotangents.dshift.size(), 1, true);
  check_span(op, "ddy", out.ddy.size(), shape.elements(), true);
  check_span(op, "dx2", out.dx2.size(), shape.elements(), true);
  check_span(op, "dgamma2", out.dgamma2.size(), shape.affine, true);
  check_span(op, "dalpha2", out.dalpha2.size(), 1, true);
  check_span(op, "dshift2", out.dshift2.size(), 1, true);
  check_span(op, "workspace", workspace.size(), squash_workspace(shape), false);
  const RowPlan plan(shape);
  const Work<T> work{shape, curve, x.data(), dy.data(), gamma.data(), cotangents, out};
  std::vector<Scalars> sums(static_cast<std::size_t>(plan.blocks));
  detail::for_row_blocks(
      plan, shape.rows, out.dgamma2.empty() ? nullptr : workspace.data(), plan.period,
      [&](std::int64_t block, std::int64_t begin, std::int64_t end, T* partial) {
        for (std::int64_t row = begin; row < end; ++row) {
          double_backward_row(work, row, partial, sums[static_cast<std::size_t>(block)]);
        }
      });
  if (!out.dgamma2.empty()) detail::merge_partials(shape, workspace.data(), 1, 0, out.dgamma2);
  Scalars sum;
  for (const Scalars& s : sums) sum = {sum.dalpha + s.dalpha, sum.dshift + s.dshift};
  if (!out.dalpha2.empty()) out.dalpha2[0] = static_cast<T>(sum.dalpha);
  if (!out.dshift2.empty()) out.dshift2[0] = static_cast<T>(sum.dshift);
}

template void squash_double_backward(const RowShape&, const SquashCurve<float>&,
                                     std::span<const float>, std::span<const float>,
                                     std::span<const float>, const SquashCotangents<float>&,
                                     const SquashSecond<float>&, std::span<float>);
template void squash_double_backward(const RowShape&, const SquashCurve<double>&,
                                     std::span<const double>, std::span<const double>,
                                     std::span<const double>, const SquashCotangents<double>&,
                                     const SquashSecond<double>&, std::span<double>);

}  // namespace steady
