#include <steadygrad/layers/pool.hpp>

#include <steadygrad/core/error.hpp>

namespace steady {
namespace {

void check_window(const char* layer, const Extent2& kernel, const Extent2& stride,
                  const Extent2& padding) {
  STEADY_CHECK(Error, at_least(kernel, 1) && (stride == 0 || at_least(stride, 1)),
               "{}: kernel and stride must be at least 1 (stride 0: the kernel); got {} and {}",
               layer, to_string(kernel), to_string(stride));
  STEADY_CHECK(Error,
               at_least(padding, 0) && 2 * padding.vertical <= kernel.vertical &&
                   2 * padding.horizontal <= kernel.horizontal,
               "{}: padding must be from 0 to half the kernel; got {}, kernel {}", layer,
               to_string(padding), to_string(kernel));
}

std::string window(const Extent2& kernel, const Extent2& stride, const Extent2& padding) {
  std::string text = "kernel=" + to_string(kernel);
  if (stride != 0) text += ", stride=" + to_string(stride);
  if (padding != 0) text += ", padding=" + to_string(padding);
  return text;
}

}  // namespace

MaxPool2d::MaxPool2d(Options options) : o(options) {
  check_window("MaxPool2d", o.kernel, o.stride, o.padding);
  STEADY_CHECK(Error, at_least(o.dilation, 1), "MaxPool2d: dilation must be at least 1; got {}",
               to_string(o.dilation));
}

Tensor MaxPool2d::forward(const Tensor& x) {
  return max_pool2d(x, Pool2dOptions{.kernel = o.kernel.array(),
                                     .stride = o.stride.array(),
                                     .padding = o.padding.array(),
                                     .dilation = o.dilation.array(),
                                     .ceil_mode = o.ceil_mode});
}

std::string MaxPool2d::describe() const {
  std::string text = "MaxPool2d(" + window(o.kernel, o.stride, o.padding);
  if (o.dilation != 1) text += ", dilation=" + to_string(o.dilation);
  if (o.ceil_mode) text += ", ceil_mode=true";
  return text + ")";
}

AvgPool2d::AvgPool2d(Options options) : o(options) {
  check_window("AvgPool2d", o.kernel, o.stride, o.padding);
}

Tensor AvgPool2d::forward(const Tensor& x) {
  return avg_pool2d(x, Pool2dOptions{.kernel = o.kernel.array(),
                                     .stride = o.stride.array(),
                                     .padding = o.padding.array(),
                                     .ceil_mode = o.ceil_mode,
                                     .count_include_pad = o.count_include_pad});
}

std::string AvgPool2d::describe() const {
  std::string text = "AvgPool2d(" + window(o.kernel, o.stride, o.padding);
  if (o.ceil_mode) text += ", ceil_mode=true";
  if (!o.count_include_pad) text += ", count_include_pad=false";
  return text + ")";
}

}  // namespace steady
