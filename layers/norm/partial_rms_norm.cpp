#include <steadygrad/layers/norm/partial_rms_norm.hpp>

#include <algorithm>
#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/norm_kinds.hpp>
#include <steadygrad/layers/norm/norm_op.hpp>
#include <steadygrad/layers/norm/row_scale.hpp>

namespace steady {
namespace {

RowScaleRule rule(double p, const Shape& normalized_shape, double eps) {
  return {.counted = partial_rms_count(p, normalized_shape.numel()), .mean = true, .eps = eps};
}

void check_part(const char* op, double p) {
  STEADY_CHECK(Error, p > 0 && p <= 1, "{}: p must be in (0, 1]; got {}", op, p);
}

const PartialRmsNorm::Options& checked(const PartialRmsNorm::Options& o) {
  detail::check_normalized_shape("PartialRmsNorm", o.normalized_shape);
  detail::check_eps("PartialRmsNorm", o.eps);
  check_part("PartialRmsNorm", o.p);
  return o;
}

}  // namespace

std::int64_t partial_rms_count(double p, std::int64_t features) {
  // A product that is whole but for its rounding is that whole number: 0.07 * 100 is 7.
  const double exact = p * static_cast<double>(features) * (1 - 1e-14);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::ceil(exact)), 1, features);
}

Tensor partial_rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight,
                        double p, double eps) {
  check_part("partial_rms_norm", p);
  return detail::row_scale(
      {"partial_rms_norm", "partial_rms_norm_backward", "partial_rms_norm_double_backward"}, x,
      normalized_shape, rule(p, normalized_shape, eps), "weight", weight, normalized_shape);
}

PartialRmsNorm::PartialRmsNorm(const Options& options)
    : o(checked(options)),
      weight(add_parameter("weight", Tensor::ones(o.normalized_shape), Role::NormScale, o.affine)) {
}

Tensor PartialRmsNorm::forward(const Tensor& x) {
  return partial_rms_norm(x, o.normalized_shape, weight, o.p, o.eps);
}

void PartialRmsNorm::measure(const Tensor& x, const MeasureSink& sink) const {
  detail::measure_row_scale(sink, x, o.normalized_shape, rule(o.p, o.normalized_shape, o.eps));
}

std::string PartialRmsNorm::describe() const {
  return fmt::format("PartialRmsNorm({}, p={}, eps={}{})", to_string(o.normalized_shape), o.p,
                     o.eps, o.affine ? "" : ", affine=false");
}

namespace detail {

NormKind partial_rms_kind() {
  return {"prms(p=0.0625[0..1], eps=1e-6[0..], affine=true)",
          [](const NormOptions& options, std::int64_t features) {
            return std::make_unique<PartialRmsNorm>(
                PartialRmsNorm::Options{.normalized_shape = {features},
                                        .p = options.number("p"),
                                        .eps = options.number("eps"),
                                        .affine = options.flag("affine")});
          }};
}

}  // namespace detail
}  // namespace steady
