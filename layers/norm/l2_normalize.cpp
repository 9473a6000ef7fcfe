#include <steadygrad/layers/norm/l2_normalize.hpp>

#include <steadygrad/layers/norm/norm_kinds.hpp>
#include <steadygrad/layers/norm/norm_op.hpp>
#include <steadygrad/layers/norm/row_scale.hpp>

namespace steady {
namespace {

RowScaleRule rule(const Shape& normalized_shape, double eps) {
  return {.counted = normalized_shape.numel(), .mean = false, .eps = eps};
}

const L2Normalize::Options& checked(const L2Normalize::Options& o) {
  detail::check_normalized_shape("L2Normalize", o.normalized_shape);
  detail::check_eps("L2Normalize", o.eps);
  return o;
}

}  // namespace

Tensor l2_normalize(const Tensor& x, const Shape& normalized_shape, double eps) {
  return detail::row_scale(
      {"l2_normalize", "l2_normalize_backward", "l2_normalize_double_backward"}, x,
      normalized_shape, rule(normalized_shape, eps), "gain", {}, normalized_shape);
}

L2Normalize::L2Normalize(const Options& options) : o(checked(options)) {}

Tensor L2Normalize::forward(const Tensor& x) { return l2_normalize(x, o.normalized_shape, o.eps); }

void L2Normalize::measure(const Tensor& x, const MeasureSink& sink) const {
  detail::measure_row_scale(sink, x, o.normalized_shape, rule(o.normalized_shape, o.eps));
}

std::string L2Normalize::describe() const {
  return fmt::format("L2Normalize({}, eps={})", to_string(o.normalized_shape), o.eps);
}

namespace detail {

NormKind l2_kind() {
  return {"l2(eps=1e-12[0..])", [](const NormOptions& options, std::int64_t features) {
            return std::make_unique<L2Normalize>(
                L2Normalize::Options{.normalized_shape = {features}, .eps = options.number("eps")});
          }};
}

}  // namespace detail
}  // namespace steady
