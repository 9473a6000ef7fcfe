#include <steadygrad/optim/clip.hpp>

#include <algorithm>
#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/elementwise.hpp>
#include <steadygrad/core/kernels/finite.hpp>
#include <steadygrad/core/kernels/reduce.hpp>

namespace steady {
namespace {

/// Calls f(parameter, elements) for every gradient; elements: span<const float or double>.
template <class F>
void each_gradient(const char* op, const Gradients& gradients,
                   std::span<const Parameter> parameters, F&& f) {
  for (const Parameter& p : parameters) {
    const Tensor* gradient = gradients.find(p.value);
    if (gradient == nullptr) continue;
    dispatch_float(op, gradient->dtype(), [&]<FloatElement T>() { f(p, gradient->data<T>()); });
  }
}

/// Calls f(elements) for every gradient, for writing.
template <class F>
void change_gradients(const char* op, Gradients& gradients, std::span<const Parameter> parameters,
                      F&& f) {
  for (const Parameter& p : parameters) {
    Tensor* gradient = gradients.find(p.value);
    if (gradient == nullptr) continue;
    dispatch_float(op, gradient->dtype(),
                   [&]<FloatElement T>() { f(gradient->mutable_data<T>(op)); });
  }
}

void check_finite(const char* op, const Gradients& gradients,
                  std::span<const Parameter> parameters) {
  each_gradient(op, gradients, parameters, [&](const Parameter& p, auto g) {
    if (kernels::all_finite(g)) return;
    const kernels::NonFinite found = kernels::count_non_finite(g);
    throw NonFiniteError(
        fmt::format("{}: the gradient of '{}' has {} NaN and {} inf of {} elements, first at {}; "
                    "nothing was changed",
                    op, p.name, found.nan, found.inf, g.size(), found.first));
  });
}

double norm_of(const char* op, const Gradients& gradients, std::span<const Parameter> parameters) {
  double sum = 0.0;
  each_gradient(op, gradients, parameters,
                [&](const Parameter&, auto g) { sum += kernels::sum_squares(g); });
  const double norm = std::sqrt(sum);
  if (std::isfinite(norm)) return norm;
  check_finite(op, gradients, parameters);
  throw NonFiniteError(fmt::format(
      "{}: the gradients are finite, but float64 cannot hold their norm; nothing was changed", op));
}

}  // namespace

double grad_norm(const Gradients& gradients, std::span<const Parameter> parameters) {
  return norm_of("grad_norm", gradients, parameters);
}

ClipReport clip_grad_norm(Gradients& gradients, std::span<const Parameter> parameters,
                          const ClipNormOptions& options) {
  STEADY_CHECK(Error, options.max_norm > 0.0 && options.epsilon >= 0.0,
               "clip_grad_norm: needs max_norm > 0 and epsilon >= 0; got {} and {}",
               options.max_norm, options.epsilon);
  ClipReport report{.norm = norm_of("clip_grad_norm", gradients, parameters)};
  const double divisor = report.norm + options.epsilon;
  if (divisor <= options.max_norm) return report;
  report.coefficient = options.max_norm / divisor;
  report.clipped = true;
  change_gradients("clip_grad_norm", gradients, parameters,
                   [&]<class T>(std::span<T> g) { kernels::scale<T>(report.coefficient, g, g); });
  return report;
}

ClipReport clip_grad_value(Gradients& gradients, std::span<const Parameter> parameters,
                           double max_value) {
  STEADY_CHECK(Error, max_value > 0.0, "clip_grad_value: needs max_value > 0; got {}", max_value);
  ClipReport report;
  bool finite = true;
  each_gradient("clip_grad_value", gradients, parameters, [&](const Parameter&, auto g) {
    const double largest = kernels::max_abs(g);
    finite = finite && std::isfinite(largest);
    report.norm = std::max(report.norm, largest);
  });
  if (!finite) check_finite("clip_grad_value", gradients, parameters);
  if (report.norm <= max_value) return report;
  report.clipped = true;
  change_gradients("clip_grad_value", gradients, parameters, [&]<class T>(std::span<T> g) {
    kernels::unary<T>(kernels::Unary::Clamp, g, g, -max_value, max_value);
  });
  return report;
}

}  // namespace steady
