#include <steadygrad/layers/linear.hpp>

#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/matmul.hpp>

namespace steady {

Linear::Options Linear::complete(Options o) {
  STEADY_CHECK(Error, o.in >= 1 && o.out >= 1,
               "Linear: in and out must be at least 1; got {} and {}", o.in, o.out);
  if (!o.weight_init) o.weight_init = kaiming_uniform_init(1.0 / std::sqrt(3.0));
  const double bound = 1.0 / std::sqrt(static_cast<double>(o.in));
  if (!o.bias_init) o.bias_init = uniform_init(-bound, bound);
  return o;
}

Shape Linear::weight_shape(const Options& o) { return {o.out, o.in}; }

Tensor Linear::apply(const Options&, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return linear(x, weight, bias);
}

Linear::Linear(Options options)
    : o(complete(std::move(options))),
      weight(add_parameter("weight", weight_shape(o), Role::Weight, o.weight_init)),
      bias(add_parameter("bias", {o.out}, Role::Bias, o.bias_init, o.bias)) {}

std::string Linear::describe(const Options& o) {
  return fmt::format("Linear({}, {}{})", o.in, o.out, o.bias ? "" : ", bias=false");
}

}  // namespace steady
