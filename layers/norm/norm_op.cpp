#include <steadygrad/layers/norm/norm_op.hpp>

#include <cmath>
#include <steadygrad/core/error.hpp>

namespace steady::detail {

void check_norm_input(const char* op, const Tensor& x) {
  check_defined(op, "x", x);
  STEADY_CHECK(ShapeError, is_float(x.dtype()), "{}: needs f32 or f64; got x {}", op, describe(x));
}

void check_summands(const char* op, const Tensor& left, const Tensor& right) {
  check_norm_input(op, left);
  check_defined(op, "right", right);
  STEADY_CHECK(ShapeError, left.shape() == right.shape() && left.dtype() == right.dtype(),
               "{}: both summands need one shape and dtype; got {} and {}", op, describe(left),
               describe(right));
}

void check_norm_parameter(const char* op, const char* name, const Tensor& parameter,
                          const Shape& expected, const Tensor& x) {
  if (!parameter.defined()) return;
  STEADY_CHECK(ShapeError, parameter.shape() == expected && parameter.dtype() == x.dtype(),
               "{}: {} must be {} {} exactly; got {} {}, x {}", op, name, to_string(x.dtype()),
               to_string(expected), name, describe(parameter), describe(x));
}

RowShape trailing_rows(const char* op, const Tensor& x, const Shape& normalized_shape) {
  const int axes = normalized_shape.rank();
  const int leading = x.rank() - axes;
  STEADY_CHECK(ShapeError,
               axes >= 1 && leading >= 0 && x.shape().slice(leading, x.rank()) == normalized_shape,
               "{}: x must end in normalized_shape, of one axis or more; got x {}, "
               "normalized_shape {}",
               op, describe(x), to_string(normalized_shape));
  const std::int64_t width = normalized_shape.numel();
  return {.rows = x.shape().numel(0, leading), .width = width, .affine = width};
}

void check_features(const char* op, const Tensor& x, std::int64_t features) {
  check_norm_input(op, x);
  STEADY_CHECK(ShapeError, x.rank() >= 2 && x.dim(-1) == features,
               "{}: needs [..., {}] of two axes or more; got x {}", op, features, describe(x));
}

void check_eps(const char* op, double eps) {
  STEADY_CHECK(Error, std::isfinite(eps) && eps >= 0, "{}: eps must be finite and >= 0; got {}", op,
               eps);
}

void check_normalized_shape(const char* op, const Shape& normalized_shape) {
  STEADY_CHECK(ShapeError, normalized_shape.rank() >= 1 && normalized_shape.numel() >= 1,
               "{}: normalized_shape needs one axis or more and no extent below 1; got {}", op,
               to_string(normalized_shape));
}

void check_momentum(const char* op, std::optional<double> momentum) {
  STEADY_CHECK(Error, !momentum || (*momentum >= 0 && *momentum <= 1),
               "{}: momentum is the weight of the new batch, in [0, 1]; got {}", op,
               momentum.value_or(0));
}

std::string describe_running(bool tracked, std::optional<double> momentum) {
  if (!tracked) return "no running statistics";
  if (!momentum) return "cumulative average";
  return fmt::format("new batch weighs momentum={}", *momentum);
}

Tensor empty_if(bool needed, const Shape& shape, Dtype dtype) {
  return needed ? Tensor::empty(shape, dtype) : Tensor();
}

}  // namespace steady::detail
