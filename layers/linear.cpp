#include <steadygrad/layers/linear.hpp>

#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/matmul.hpp>

namespace steady {
namespace {

Linear::Options checked(Linear::Options o) {
  STEADY_CHECK(Error, o.in >= 1 && o.out >= 1,
               "Linear: in and out must be at least 1; got {} and {}", o.in, o.out);
  if (!o.weight_init) o.weight_init = kaiming_uniform_init(1.0 / std::sqrt(3.0));
  const double bound = 1.0 / std::sqrt(static_cast<double>(o.in));
  if (!o.bias_init) o.bias_init = uniform_init(-bound, bound);
  return o;
}

}  // namespace

Linear::Linear(Options options)
    : o(checked(std::move(options))),
      weight(add_parameter("weight", {o.out, o.in}, Role::Weight, o.weight_init)),
      bias(add_parameter("bias", {o.out}, Role::Bias, o.bias_init, o.bias)) {}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight, bias); }

std::string Linear::describe() const {
  return fmt::format("Linear({}, {}{})", o.in, o.out, o.bias ? "" : ", bias=false");
}

}  // namespace steady
