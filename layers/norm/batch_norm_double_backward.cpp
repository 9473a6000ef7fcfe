#include <algorithm>
#include <steadygrad/layers/norm/batch_norm_kernel.hpp>
#include <steadygrad/layers/norm/row_stats.hpp>

// Derivative of the backward pass, one channel of M elements; m(.) is the mean over the channel,
// u = dy, xhat = (x - mean) * r, and P(v) = v - m(v) - xhat * m(v * xhat) as in
// batch_norm_kernel.cpp. a, bg, bb are the cotangents of dx = gamma * r * P(u), dgamma = sum u *
// xhat, dbeta = sum u; what is differentiated is
//   L = M * (gamma * r * m(a * P(u)) + bg * m(u * xhat) + bb * m(u)).
// P is symmetric, so with A = m(a * xhat), U = m(u * xhat), cov = m(a * u) - m(a) * m(u):
//   m(a * P(u)) = cov - A * U,
//   dL/du     = gamma * r * P(a) + bg * xhat + bb
//   dL/dgamma = r * M * (cov - A * U).
// x enters through r, dr = -r^2 * m(xhat * dx), and through xhat, dxhat = r * P(dx):
//   dL/dx = bg * r * P(u) - gamma * r^2 * (xhat * (cov - A * U) + U * P(a) + A * P(u)).
// Frozen, mean and r are constants, P(v) = v and dx = gamma * r * u:
//   dL/du = gamma * r * a + bg * xhat + bb,  dL/dgamma = r * M * m(a * u),  dL/dx = bg * r * u.

namespace steady {

using detail::check_span;
using detail::ColumnPlan;

namespace {

template <class T>
struct Arguments {
  std::span<const T> x, dy, gamma, stats, ddx, ddgamma, ddbeta;
  std::span<T> ddy, dx2, dgamma2;
};

template <class T>
double element(std::span<const T> values, std::int64_t i, double absent) {
  return values.empty() ? absent : static_cast<double>(values[static_cast<std::size_t>(i)]);
}

// Sums of a, u, a * xhat, u * xhat, a * u, one line of `channels` each.
enum Kind : std::size_t { A, U, AX, UX, AU };

template <class T>
class DoubleBackward {
 public:
  DoubleBackward(const ColumnShape& shape, const Arguments<T>& k, bool frozen,
                 std::span<double> workspace)
      : k_(k),
        plan_(shape),
        rows_(shape.rows),
        frozen_(frozen),
        partials_(workspace.data()),
        sums_(workspace.last(static_cast<std::size_t>(ColumnPlan::Kinds * shape.channels))) {}

  void run() {
    reduce();
    for (std::int64_t c = 0; c < plan_.channels; ++c) finish(c);
    for_rows([&](std::int64_t, std::int64_t row) { write_row(row); });
  }

 private:
  [[nodiscard]] double xhat(std::int64_t i, std::int64_t c) const {
    const double d = element(k_.x, i, 0) - element(k_.stats, c, 0);
    return (d - element(k_.stats, plan_.channels + c, 0)) * rstd(c);
  }
  [[nodiscard]] double rstd(std::int64_t c) const {
    return element(k_.stats, 2 * plan_.channels + c, 0);
  }
  [[nodiscard]] double& sum(Kind kind, std::int64_t c) {
    return sums_[kind * static_cast<std::size_t>(plan_.channels) + static_cast<std::size_t>(c)];
  }

  // body(chunk, row) for all rows, chunks in parallel; the rows that fill no line go with the last.
  template <class Body>
  void for_rows(Body body) {
    const std::int64_t chunk_rows = plan_.chunk_lines * plan_.fold;
    parallel_for(plan_.chunks, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t chunk = first; chunk < last; ++chunk) {
        const std::int64_t end = chunk + 1 == plan_.chunks ? rows_ : (chunk + 1) * chunk_rows;
        for (std::int64_t row = chunk * chunk_rows; row < end; ++row) body(chunk, row);
      }
    });
  }

  void reduce() {
    const std::int64_t size = ColumnPlan::Kinds * plan_.channels;
    std::fill_n(partials_, plan_.chunks * size, 0.0);
    for_rows([&](std::int64_t chunk, std::int64_t row) {
      double* partial = partials_ + chunk * size;
      for (std::int64_t c = 0; c < plan_.channels; ++c) {
        const std::int64_t i = row * plan_.channels + c;
        const double a = element(k_.ddx, i, 0), u = element(k_.dy, i, 0), xh = xhat(i, c);
        const double terms[ColumnPlan::Kinds] = {a, u, a * xh, u * xh, a * u};
        for (std::int64_t kind = 0; kind < ColumnPlan::Kinds; ++kind) {
          partial[kind * plan_.channels + c] += terms[kind];
        }
      }
    });
    std::fill(sums_.begin(), sums_.end(), 0.0);
    for (std::int64_t chunk = 0; chunk < plan_.chunks; ++chunk) {
      const double* partial = partials_ + chunk * size;
      for (std::size_t j = 0; j < sums_.size(); ++j) sums_[j] += partial[j];
    }
  }

  // Turns sums into means, and AU into cov - A * U; frozen statistics have no such terms.
  void finish(std::int64_t c) {
    const auto count = static_cast<double>(rows_);
    const double au = sum(AU, c);
    for (const Kind kind : {A, U, AX, UX, AU}) sum(kind, c) = frozen_ ? 0 : sum(kind, c) / count;
    sum(AU, c) -= sum(A, c) * sum(U, c) + sum(AX, c) * sum(UX, c);
    if (k_.dgamma2.empty()) return;
    k_.dgamma2[static_cast<std::size_t>(c)] =
        static_cast<T>(rstd(c) * (frozen_ ? au : count * sum(AU, c)));
  }

  void write_row(std::int64_t row) {
    for (std::int64_t c = 0; c < plan_.channels; ++c) {
      const std::int64_t i = row * plan_.channels + c;
      const double r = rstd(c), g = element(k_.gamma, c, 1), xh = xhat(i, c);
      const double bg = element(k_.ddgamma, c, 0), bb = element(k_.ddbeta, c, 0);
      const double pa = element(k_.ddx, i, 0) - sum(A, c) - xh * sum(AX, c);
      const double pu = element(k_.dy, i, 0) - sum(U, c) - xh * sum(UX, c);
      const auto to = static_cast<std::size_t>(i);
      if (!k_.ddy.empty()) k_.ddy[to] = static_cast<T>(g * r * pa + bg * xh + bb);
      if (!k_.dx2.empty()) {
        const double inner = xh * sum(AU, c) + sum(UX, c) * pa + sum(AX, c) * pu;
        k_.dx2[to] = static_cast<T>(bg * r * pu - g * r * r * inner);
      }
    }
  }

  const Arguments<T>& k_;
  ColumnPlan plan_;
  std::int64_t rows_;
  bool frozen_;
  double* partials_;
  std::span<double> sums_;
};

template <class T>
void double_backward(const char* op, bool frozen, const ColumnShape& shape, const Arguments<T>& k,
                     std::span<double> workspace) {
  ColumnPlan::check(op, shape);
  check_span(op, "x", k.x.size(), shape.elements(), false);
  check_span(op, "dy", k.dy.size(), shape.elements(), false);
  check_span(op, "gamma", k.gamma.size(), shape.channels, true);
  check_span(op, "stats", k.stats.size(), 3 * shape.channels, false);
  check_span(op, "ddx", k.ddx.size(), shape.elements(), true);
  check_span(op, "ddgamma", k.ddgamma.size(), shape.channels, true);
  check_span(op, "ddbeta", k.ddbeta.size(), shape.channels, true);
  check_span(op, "ddy", k.ddy.size(), shape.elements(), true);
  check_span(op, "dx2", k.dx2.size(), shape.elements(), true);
  check_span(op, "dgamma2", k.dgamma2.size(), shape.channels, true);
  check_span(op, "workspace", workspace.size(), column_workspace(shape), false);
  DoubleBackward<T>(shape, k, frozen, workspace).run();
}

}  // namespace

template <class T>
void batch_norm_double_backward(const ColumnShape& shape, std::span<const T> x,
                                std::span<const T> dy, std::span<const T> gamma,
                                std::span<const T> stats, std::span<const T> ddx,
                                std::span<const T> ddgamma, std::span<const T> ddbeta,
                                std::span<T> ddy, std::span<T> dx2, std::span<T> dgamma2,
                                std::span<double> workspace) {
  double_backward<T>("batch_norm_double_backward", false, shape,
                     {x, dy, gamma, stats, ddx, ddgamma, ddbeta, ddy, dx2, dgamma2}, workspace);
}

template <class T>
void batch_norm_double_backward_frozen(const ColumnShape& shape, std::span<const T> x,
                                       std::span<const T> dy, std::span<const T> gamma,
                                       std::span<const T> stats, std::span<const T> ddx,
                                       std::span<const T> ddgamma, std::span<const T> ddbeta,
                                       std::span<T> ddy, std::span<T> dx2, std::span<T> dgamma2,
                                       std::span<double> workspace) {
  double_backward<T>("batch_norm_double_backward_frozen", true, shape,
                     {x, dy, gamma, stats, ddx, ddgamma, ddbeta, ddy, dx2, dgamma2}, workspace);
}

#define STEADY_DOUBLE_BACKWARD(name, T)                                                  \
  template void name(const ColumnShape&, std::span<const T>, std::span<const T>,         \
                     std::span<const T>, std::span<const T>, std::span<const T>,         \
                     std::span<const T>, std::span<const T>, std::span<T>, std::span<T>, \
                     std::span<T>, std::span<double>)
STEADY_DOUBLE_BACKWARD(batch_norm_double_backward, float);
STEADY_DOUBLE_BACKWARD(batch_norm_double_backward, double);
STEADY_DOUBLE_BACKWARD(batch_norm_double_backward_frozen, float);
STEADY_DOUBLE_BACKWARD(batch_norm_double_backward_frozen, double);
#undef STEADY_DOUBLE_BACKWARD

}  // namespace steady
