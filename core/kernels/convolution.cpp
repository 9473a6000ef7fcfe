#include <algorithm>
#include <atomic>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/convolution.hpp>

namespace steady::kernels {
namespace {

using Index = std::int64_t;

std::atomic<bool> library_enabled{true};

[[nodiscard]] bool fits(std::initializer_list<Index> extents) {
  Index product = 1;
  for (const Index extent : extents)
    if (extent != 0 && __builtin_mul_overflow(product, extent, &product)) return false;
  return product <= std::numeric_limits<Index>::max() / 8;
}

void check_size(const char* name, std::size_t got, Index want) {
  STEADY_CHECK(ShapeError, got == static_cast<std::size_t>(want),
               "conv2d: {} must have {} elements; got {}", name, want, got);
}

template <class T>
void check_bias(const Conv2dGeometry& g, std::span<const T> bias, const char* name) {
  if (!bias.empty()) check_size(name, bias.size(), g.out_channels);
}

}  // namespace

void Conv2dGeometry::check() const {
  STEADY_CHECK(
      ShapeError, batch >= 0 && height >= 1 && width >= 1 && in_channels >= 1 && out_channels >= 1,
      "conv2d: needs an image [N, H, W, C] and output channels; got [{}, {}, {}, {}] and {}", batch,
      height, width, in_channels, out_channels);
  STEADY_CHECK(ShapeError, groups >= 1 && in_channels % groups == 0 && out_channels % groups == 0,
               "conv2d: channels must be divisible by groups; got {} in, {} out, groups {}",
               in_channels, out_channels, groups);
  for (std::size_t axis = 0; axis < 2; ++axis) {
    STEADY_CHECK(
        ShapeError,
        kernel[axis] >= 1 && stride[axis] >= 1 && dilation[axis] >= 1 && padding[axis] >= 0,
        "conv2d: kernel, stride and dilation must be at least 1 and padding at least 0; "
        "got kernel {}, stride {}, dilation {}, padding {}",
        kernel[axis], stride[axis], dilation[axis], padding[axis]);
    STEADY_CHECK(ShapeError, out_extent(axis, axis == 0 ? height : width) >= 1,
                 "conv2d: kernel is larger than the padded image; got image {}, kernel {}, "
                 "dilation {}, padding {}",
                 axis == 0 ? height : width, kernel[axis], dilation[axis], padding[axis]);
  }
  STEADY_CHECK(
      ShapeError,
      fits({batch, height, width, in_channels}) &&
          fits({batch, out_height(), out_width(), out_channels}) &&
          fits({out_channels, in_channels, kernel[0], kernel[1]}),
      "conv2d: number of elements does not fit 64 bits; got [{}, {}, {}, {}] and {} output "
      "channels",
      batch, height, width, in_channels, out_channels);
}

template <std::floating_point T>
void conv2d_forward(const Conv2dGeometry& geometry, std::span<const T> x, std::span<const T> weight,
                    std::span<const T> bias, std::span<T> y) {
  geometry.check();
  check_size("x", x.size(), geometry.x_size());
  check_size("weight", weight.size(), geometry.weight_size());
  check_bias<T>(geometry, bias, "bias");
  check_size("y", y.size(), geometry.y_size());
  conv2d_forward_reference(geometry, x, weight, bias, y);
}

template <std::floating_point T>
void conv2d_backward_input(const Conv2dGeometry& geometry, std::span<const T> dy,
                           std::span<const T> weight, std::span<T> dx) {
  geometry.check();
  check_size("dy", dy.size(), geometry.y_size());
  check_size("weight", weight.size(), geometry.weight_size());
  check_size("dx", dx.size(), geometry.x_size());
  conv2d_backward_input_reference(geometry, dy, weight, dx);
}

template <std::floating_point T>
void conv2d_backward_weight(const Conv2dGeometry& geometry, std::span<const T> x,
                            std::span<const T> dy, std::span<T> dweight, std::span<T> dbias) {
  geometry.check();
  check_size("x", x.size(), geometry.x_size());
  check_size("dy", dy.size(), geometry.y_size());
  check_size("dweight", dweight.size(), geometry.weight_size());
  check_bias<T>(geometry, dbias, "dbias");
  conv2d_backward_weight_reference(geometry, x, dy, dweight, dbias);
}

template void conv2d_forward<float>(const Conv2dGeometry&, std::span<const float>,
                                    std::span<const float>, std::span<const float>,
                                    std::span<float>);
template void conv2d_forward<double>(const Conv2dGeometry&, std::span<const double>,
                                     std::span<const double>, std::span<const double>,
                                     std::span<double>);
template void conv2d_backward_input<float>(const Conv2dGeometry&, std::span<const float>,
                                           std::span<const float>, std::span<float>);
template void conv2d_backward_input<double>(const Conv2dGeometry&, std::span<const double>,
                                            std::span<const double>, std::span<double>);
template void conv2d_backward_weight<float>(const Conv2dGeometry&, std::span<const float>,
                                            std::span<const float>, std::span<float>,
                                            std::span<float>);
template void conv2d_backward_weight<double>(const Conv2dGeometry&, std::span<const double>,
                                             std::span<const double>, std::span<double>,
                                             std::span<double>);

bool set_library_convolution(bool enabled) { return library_enabled.exchange(enabled); }
bool library_convolution() { return library_enabled.load(std::memory_order_relaxed); }

}  // namespace steady::kernels
