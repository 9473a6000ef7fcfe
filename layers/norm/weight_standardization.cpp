#include <steadygrad/layers/norm/weight_standardization.hpp>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/layers/norm/layer_norm.hpp>
#include <steadygrad/layers/norm/norm_op.hpp>

namespace steady {
namespace {

template <class Inner>
typename WeightStandardization<Inner>::Options checked(
    typename WeightStandardization<Inner>::Options o) {
  detail::check_eps("WeightStandardization", o.eps);
  o.inner = Inner::complete(std::move(o.inner));
  return o;
}

}  // namespace

Tensor weight_standardization(const Tensor& weight, double eps) {
  const char* op = "weight_standardization";
  detail::check_norm_input(op, weight);
  STEADY_CHECK(ShapeError, weight.rank() >= 2, "{}: needs weight [out, ...]; got weight {}", op,
               describe(weight));
  const std::int64_t rest = weight.shape().numel(1, weight.rank());
  // Layer normalization of the rows of a matrix, without gain and bias.
  const Tensor rows = reshape(weight, {weight.dim(0), rest});
  return reshape(layer_norm(rows, {rest}, {}, {}, eps), weight.shape());
}

template <class Inner>
WeightStandardization<Inner>::WeightStandardization(Options options)
    : o(checked<Inner>(std::move(options))),
      weight(
          add_parameter("weight", Inner::weight_shape(o.inner), Role::Weight, o.inner.weight_init)),
      bias(add_parameter("bias", {o.inner.out}, Role::Bias, o.inner.bias_init, o.inner.bias)) {}

template <class Inner>
Tensor WeightStandardization<Inner>::forward(const Tensor& x) {
  return Inner::apply(o.inner, x, standardized(), bias);
}

template <class Inner>
std::string WeightStandardization<Inner>::describe() const {
  return fmt::format("WeightStandardization({}, eps={})", Inner::describe(o.inner), o.eps);
}

template class WeightStandardization<Linear>;
template class WeightStandardization<Conv2d>;

}  // namespace steady
