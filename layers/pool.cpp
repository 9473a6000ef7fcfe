#include <steadygrad/layers/pool.hpp>

namespace steady {
namespace {

std::string window(const Extent2& kernel, const Extent2& stride, const Extent2& padding) {
  std::string text = "kernel=" + to_string(kernel);
  if (stride != 0) text += ", stride=" + to_string(stride);
  if (padding != 0) text += ", padding=" + to_string(padding);
  return text;
}

}  // namespace

Tensor MaxPool2d::forward(const Tensor& x) {
  return max_pool2d(x, Pool2dOptions{.kernel = o.kernel.array(),
                                     .stride = o.stride.array(),
                                     .padding = o.padding.array(),
                                     .dilation = o.dilation.array(),
                                     .ceil_mode = o.ceil_mode});
}

std::string MaxPool2d::describe() const {
  return "MaxPool2d(" + window(o.kernel, o.stride, o.padding) + ")";
}

Tensor AvgPool2d::forward(const Tensor& x) {
  return avg_pool2d(x, Pool2dOptions{.kernel = o.kernel.array(),
                                     .stride = o.stride.array(),
                                     .padding = o.padding.array(),
                                     .ceil_mode = o.ceil_mode,
                                     .count_include_pad = o.count_include_pad});
}

std::string AvgPool2d::describe() const {
  return "AvgPool2d(" + window(o.kernel, o.stride, o.padding) + ")";
}

}  // namespace steady
