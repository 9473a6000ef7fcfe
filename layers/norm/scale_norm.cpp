#include <steadygrad/layers/norm/scale_norm.hpp>

#include <cmath>
#include <steadygrad/layers/norm/norm_kinds.hpp>
#include <steadygrad/layers/norm/norm_op.hpp>
#include <steadygrad/layers/norm/row_scale.hpp>

namespace steady {
namespace {

RowScaleRule rule(const Shape& normalized_shape, double eps) {
  return {.counted = normalized_shape.numel(), .mean = false, .eps = eps};
}

const ScaleNorm::Options& checked(const ScaleNorm::Options& o) {
  detail::check_normalized_shape("ScaleNorm", o.normalized_shape);
  detail::check_eps("ScaleNorm", o.eps);
  return o;
}

}  // namespace

Tensor scale_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& g, double eps) {
  return detail::row_scale({"scale_norm", "scale_norm_backward", "scale_norm_double_backward"}, x,
                           normalized_shape, rule(normalized_shape, eps), "g", g, {});
}

ScaleNorm::ScaleNorm(const Options& options)
    : o(checked(options)),
      g(add_parameter("g",
                      Tensor::full({}, std::sqrt(static_cast<double>(o.normalized_shape.numel()))),
                      Role::NormScale)) {}

Tensor ScaleNorm::forward(const Tensor& x) { return scale_norm(x, o.normalized_shape, g, o.eps); }

void ScaleNorm::measure(const Tensor& x, const MeasureSink& sink) const {
  detail::measure_row_scale(sink, x, o.normalized_shape, rule(o.normalized_shape, o.eps));
}

std::string ScaleNorm::describe() const {
  return fmt::format("ScaleNorm({}, eps={})", to_string(o.normalized_shape), o.eps);
}

namespace detail {

NormKind scale_kind() {
  return {"scale(eps=1e-5[0..])", [](const NormOptions& options, std::int64_t features) {
            return std::make_unique<ScaleNorm>(
                ScaleNorm::Options{.normalized_shape = {features}, .eps = options.number("eps")});
          }};
}

}  // namespace detail
}  // namespace steady
