#include <steadygrad/layers/norm/dynamic_erf.hpp>

#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/norm_kinds.hpp>
#include <steadygrad/layers/norm/norm_measure.hpp>
#include <steadygrad/layers/norm/norm_op.hpp>
#include <steadygrad/layers/norm/squash.hpp>

namespace steady {
namespace {

const DynamicErf::Options& checked(const DynamicErf::Options& o) {
  detail::check_normalized_shape("DynamicErf", o.normalized_shape);
  STEADY_CHECK(Error, std::isfinite(o.alpha) && std::isfinite(o.shift),
               "DynamicErf: alpha and shift must be finite; got {} and {}", o.alpha, o.shift);
  return o;
}

}  // namespace

Tensor dynamic_erf(const Tensor& x, const Shape& normalized_shape, const Tensor& alpha,
                   const Tensor& shift, const Tensor& weight, const Tensor& bias) {
  return detail::squash({"dynamic_erf", "dynamic_erf_backward", "dynamic_erf_double_backward"},
                        Squash::Erf, x, normalized_shape, {alpha, shift, weight, bias});
}

DynamicErf::DynamicErf(const Options& options)
    : o(checked(options)),
      alpha(add_parameter("alpha", Tensor::full({1}, o.alpha), Role::NormScale)),
      shift(add_parameter("shift", Tensor::full({1}, o.shift), Role::NormShift)),
      weight(add_parameter("weight", Tensor::ones(o.normalized_shape), Role::NormScale, o.affine)),
      bias(add_parameter("bias", Tensor::zeros(o.normalized_shape), Role::NormShift,
                         o.affine && o.bias)) {}

Tensor DynamicErf::forward(const Tensor& x) {
  return dynamic_erf(x, o.normalized_shape, alpha, shift, weight, bias);
}

void DynamicErf::measure(const Tensor& x, const MeasureSink& sink) const {
  detail::measure_squash(
      sink, alpha, dynamic_erf(x.detach(), o.normalized_shape, alpha.detach(), shift.detach()));
}

std::string DynamicErf::describe() const {
  return fmt::format("DynamicErf({}, alpha={}, shift={}{})", to_string(o.normalized_shape), o.alpha,
                     o.shift,
                     !o.affine ? ", affine=false"
                     : !o.bias ? ", bias=false"
                               : "");
}

namespace detail {

NormKind dynamic_erf_kind() {
  return {
      "derf(alpha=0.5, shift=0, affine=true, bias=true)",
      [](const NormOptions& options, std::int64_t features) {
        return std::make_unique<DynamicErf>(DynamicErf::Options{.normalized_shape = {features},
                                                                .alpha = options.number("alpha"),
                                                                .shift = options.number("shift"),
                                                                .affine = options.flag("affine"),
                                                                .bias = options.flag("bias")});
      }};
}

}  // namespace detail
}  // namespace steady
