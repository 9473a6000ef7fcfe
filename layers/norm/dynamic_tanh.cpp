#include <steadygrad/layers/norm/dynamic_tanh.hpp>

#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/norm_kinds.hpp>
#include <steadygrad/layers/norm/norm_measure.hpp>
#include <steadygrad/layers/norm/norm_op.hpp>
#include <steadygrad/layers/norm/squash.hpp>

namespace steady {
namespace {

const DynamicTanh::Options& checked(const DynamicTanh::Options& o) {
  detail::check_normalized_shape("DynamicTanh", o.normalized_shape);
  STEADY_CHECK(Error, std::isfinite(o.alpha), "DynamicTanh: alpha must be finite; got {}", o.alpha);
  return o;
}

}  // namespace

Tensor dynamic_tanh(const Tensor& x, const Shape& normalized_shape, const Tensor& alpha,
                    const Tensor& weight, const Tensor& bias) {
  return detail::squash({"dynamic_tanh", "dynamic_tanh_backward", "dynamic_tanh_double_backward"},
                        Squash::Tanh, x, normalized_shape, {alpha, {}, weight, bias});
}

DynamicTanh::DynamicTanh(const Options& options)
    : o(checked(options)),
      alpha(add_parameter("alpha", Tensor::full({1}, o.alpha), Role::NormScale)),
      weight(add_parameter("weight", Tensor::ones(o.normalized_shape), Role::NormScale, o.affine)),
      bias(add_parameter("bias", Tensor::zeros(o.normalized_shape), Role::NormShift,
                         o.affine && o.bias)) {}

Tensor DynamicTanh::forward(const Tensor& x) {
  return dynamic_tanh(x, o.normalized_shape, alpha, weight, bias);
}

void DynamicTanh::measure(const Tensor& x, const MeasureSink& sink) const {
  detail::measure_squash(sink, alpha, dynamic_tanh(x.detach(), o.normalized_shape, alpha.detach()));
}

std::string DynamicTanh::describe() const {
  return fmt::format("DynamicTanh({}, alpha={}{})", to_string(o.normalized_shape), o.alpha,
                     !o.affine ? ", affine=false"
                     : !o.bias ? ", bias=false"
                               : "");
}

namespace detail {

NormKind dynamic_tanh_kind() {
  return {
      "dyt(alpha=0.5, affine=true, bias=true)",
      [](const NormOptions& options, std::int64_t features) {
        return std::make_unique<DynamicTanh>(DynamicTanh::Options{.normalized_shape = {features},
                                                                  .alpha = options.number("alpha"),
                                                                  .affine = options.flag("affine"),
                                                                  .bias = options.flag("bias")});
      }};
}

}  // namespace detail
}  // namespace steady
