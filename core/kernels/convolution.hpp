#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>

/// Two-dimensional convolution (cross-correlation, as in every framework), features last:
///   y[n, i, j, k] = bias[k] + sum_{a, b, c} x[n, i*sh + a*dh - ph, j*sw + b*dw - pw, g*Cg + c] *
///   w[k, c, a, b]
/// with Cg = C / groups and g the group of output channel k; x outside the image counts as zero.
/// x: [N, H, W, C]; y: [N, Ho, Wo, K]; w: [K, C / groups, kh, kw] (PyTorch's order); bias: [K].
///
/// float32 runs through oneDNN on one thread per chunk of images, with AVX2 alone most weight
/// gradients through convolution_panels.hpp; double (and whatever oneDNN has no primitive for)
/// through the reference kernels. The cut into chunks depends on the shape alone
/// and partial weight gradients are added in chunk order: the bits do not depend on the thread
/// count.
namespace steady::kernels {

/// Sizes of one convolution; the same value drives forward and both backwards.
struct Conv2dGeometry {
  std::int64_t batch = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t in_channels = 0;
  std::int64_t out_channels = 0;
  std::array<std::int64_t, 2> kernel{1, 1};  ///< (vertical, horizontal), in elements
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};   ///< zeros added on both sides
  std::array<std::int64_t, 2> dilation{1, 1};  ///< distance between kernel elements
  std::int64_t groups = 1;

  /// Throws ShapeError unless every size makes sense together: kernel, stride, dilation and groups
  /// >= 1, padding >= 0, all below 2^31, channels divisible by groups, and an output of at least
  /// one pixel. batch = 0 is allowed.
  void check() const;

  /// floor((in + 2*padding - dilation*(kernel-1) - 1) / stride) + 1
  [[nodiscard]] std::int64_t out_height() const { return out_extent(0, height); }
  [[nodiscard]] std::int64_t out_width() const { return out_extent(1, width); }
  /// Numbers of elements.
  [[nodiscard]] std::int64_t x_size() const { return batch * height * width * in_channels; }
  [[nodiscard]] std::int64_t y_size() const {
    return batch * out_height() * out_width() * out_channels;
  }
  [[nodiscard]] std::int64_t weight_size() const {
    return out_channels * (in_channels / groups) * kernel[0] * kernel[1];
  }

  friend bool operator==(const Conv2dGeometry&, const Conv2dGeometry&) = default;

 private:
  [[nodiscard]] std::int64_t out_extent(std::size_t axis, std::int64_t in) const {
    const std::int64_t room = in + 2 * padding[axis] - dilation[axis] * (kernel[axis] - 1) - 1;
    return room < 0 ? 0 : room / stride[axis] + 1;
  }
};

/// Writes y. An empty bias counts as zero. Throws ShapeError when a buffer does not fit the
/// geometry.
template <std::floating_point T>
void conv2d_forward(const Conv2dGeometry& geometry, std::span<const T> x, std::span<const T> weight,
                    std::span<const T> bias, std::span<T> y);

/// Writes dx, the gradient of sum(y * dy) with respect to x; every element of dx is assigned, also
/// those that no window reads.
template <std::floating_point T>
void conv2d_backward_input(const Conv2dGeometry& geometry, std::span<const T> dy,
                           std::span<const T> weight, std::span<T> dx);

/// Writes dweight and, unless it is empty, dbias (dbias[k] = sum of dy over all pixels).
template <std::floating_point T>
void conv2d_backward_weight(const Conv2dGeometry& geometry, std::span<const T> x,
                            std::span<const T> dy, std::span<T> dweight, std::span<T> dbias);

/// Whether float32 convolutions may use oneDNN and panels (default true). With false, and whenever
/// neither serves a geometry, the reference kernels run. Returns the previous setting.
bool set_library_convolution(bool enabled);
[[nodiscard]] bool library_convolution();

enum class ConvolutionPass : std::uint8_t { Forward, BackwardInput, BackwardWeight };

/// What runs for a float32 convolution: oneDNN's name of its implementation, "panels" or
/// "reference".
[[nodiscard]] std::string_view conv2d_implementation(ConvolutionPass pass,
                                                     const Conv2dGeometry& geometry,
                                                     bool with_bias);

/// The plain loops, for any geometry and both precisions: oracle of the fast path and its fallback.
/// Same contracts as above, without the buffer checks.
template <std::floating_point T>
void conv2d_forward_reference(const Conv2dGeometry& geometry, std::span<const T> x,
                              std::span<const T> weight, std::span<const T> bias, std::span<T> y);
template <std::floating_point T>
void conv2d_backward_input_reference(const Conv2dGeometry& geometry, std::span<const T> dy,
                                     std::span<const T> weight, std::span<T> dx);
template <std::floating_point T>
void conv2d_backward_weight_reference(const Conv2dGeometry& geometry, std::span<const T> x,
                                      std::span<const T> dy, std::span<T> dweight,
                                      std::span<T> dbias);

/// Images per chunk: at most eight chunks, so that up to eight threads have work and the partial
/// weight gradients stay few. A function of the batch alone.
[[nodiscard]] constexpr std::int64_t conv2d_chunk(std::int64_t batch) {
  return batch <= 8 ? 1 : (batch + 7) / 8;
}

}  // namespace steady::kernels
