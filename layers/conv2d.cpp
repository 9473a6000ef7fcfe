#include <steadygrad/layers/conv2d.hpp>

#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/conv.hpp>

namespace steady {

Conv2d::Options Conv2d::complete(Options o) {
  STEADY_CHECK(Error, o.in >= 1 && o.out >= 1,
               "Conv2d: in and out must be at least 1; got {} and {}", o.in, o.out);
  STEADY_CHECK(Error, at_least(o.kernel, 1) && at_least(o.stride, 1) && at_least(o.dilation, 1),
               "Conv2d: kernel, stride and dilation must be at least 1; got {}, {} and {}",
               to_string(o.kernel), to_string(o.stride), to_string(o.dilation));
  STEADY_CHECK(Error, at_least(o.padding, 0), "Conv2d: padding must not be negative; got {}",
               to_string(o.padding));
  STEADY_CHECK(Error, o.groups >= 1 && o.in % o.groups == 0 && o.out % o.groups == 0,
               "Conv2d: groups must divide in and out; got groups {}, in {}, out {}", o.groups,
               o.in, o.out);
  if (!o.weight_init) o.weight_init = kaiming_uniform_init(1.0 / std::sqrt(3.0));
  const auto fan_in = o.in / o.groups * o.kernel.vertical * o.kernel.horizontal;
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
  if (!o.bias_init) o.bias_init = uniform_init(-bound, bound);
  return o;
}

Shape Conv2d::weight_shape(const Options& o) {
  return {o.out, o.in / o.groups, o.kernel.vertical, o.kernel.horizontal};
}

Conv2d::Conv2d(Options options)
    : o(complete(std::move(options))),
      weight(add_parameter("weight", weight_shape(o), Role::Weight, o.weight_init)),
      bias(add_parameter("bias", {o.out}, Role::Bias, o.bias_init, o.bias)) {}

Tensor Conv2d::apply(const Options& o, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return conv2d(x, weight, bias,
                {.stride = o.stride.array(),
                 .padding = o.padding.array(),
                 .dilation = o.dilation.array(),
                 .groups = o.groups});
}

std::string Conv2d::describe(const Options& o) {
  std::string text = fmt::format("Conv2d({}, {}, kernel={}", o.in, o.out, to_string(o.kernel));
  if (o.stride != 1) text += fmt::format(", stride={}", to_string(o.stride));
  if (o.padding != 0) text += fmt::format(", padding={}", to_string(o.padding));
  if (o.dilation != 1) text += fmt::format(", dilation={}", to_string(o.dilation));
  if (o.groups != 1) text += fmt::format(", groups={}", o.groups);
  if (!o.bias) text += ", bias=false";
  return text + ")";
}

}  // namespace steady
