#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <span>

/// Two-dimensional pooling, features last: x: [N, H, W, C] -> y: [N, Ho, Wo, C].
/// All kernels run in parallel over images, or over output rows where each element has one writer.
namespace steady::kernels {

/// Sizes of one pooling.
struct Pool2dGeometry {
  std::int64_t batch = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::array<std::int64_t, 2> kernel{1, 1};  ///< (vertical, horizontal), in elements
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};
  std::array<std::int64_t, 2> dilation{1, 1};  ///< average pooling needs 1
  bool ceil_mode = false;  ///< round the output size up; a window must still start inside the image
                           ///< or its leading padding

  /// Throws ShapeError unless kernel, stride and dilation are >= 1, 0 <= padding <= kernel / 2 (so
  /// that no window lies wholly in the padding), the output has at least one pixel, and a plane has
  /// fewer than 2^31 pixels.
  void check(const char* op) const;

  [[nodiscard]] std::int64_t out_height() const { return out_extent(0, height); }
  [[nodiscard]] std::int64_t out_width() const { return out_extent(1, width); }
  [[nodiscard]] std::int64_t x_size() const { return batch * height * width * channels; }
  [[nodiscard]] std::int64_t y_size() const {
    return batch * out_height() * out_width() * channels;
  }

  friend bool operator==(const Pool2dGeometry&, const Pool2dGeometry&) = default;

 private:
  [[nodiscard]] std::int64_t out_extent(std::size_t axis, std::int64_t in) const;
};

/// y = maximum of each window; padding counts as -inf. index[n, i, j, c] is the winner's h * W + w
/// in its own plane. The first maximum in row-major order wins a tie; the first NaN of a window
/// wins over everything, so that a NaN is never hidden.
template <std::floating_point T>
void max_pool2d_forward(const Pool2dGeometry& geometry, std::span<const T> x, std::span<T> y,
                        std::span<std::int32_t> index);

/// dx[n, index, c] = sum of dy over the windows that index chose; every element of dx is assigned.
template <std::floating_point T>
void max_pool2d_backward(const Pool2dGeometry& geometry, std::span<const T> dy,
                         std::span<const std::int32_t> index, std::span<T> dx);

/// Whether the windows lie side by side and cover every image. Then the rows of all images, one
/// image after the other, are batch * Ho bands of kernel[0] rows: one row of windows each.
[[nodiscard]] bool windows_tile(const Pool2dGeometry& geometry);

/// max_pool2d_forward and max_pool2d_backward of the bands [first, first + count), where windows
/// tile, on the calling thread. x and dx hold these bands alone, y, dy and index all.
template <std::floating_point T>
void max_pool2d_forward_bands(const Pool2dGeometry& geometry, std::int64_t first,
                              std::int64_t count, const T* x, T* y, std::int32_t* index);
template <std::floating_point T>
void max_pool2d_backward_bands(const Pool2dGeometry& geometry, std::int64_t first,
                               std::int64_t count, const T* dy, const std::int32_t* index, T* dx);

/// y[n, i, j, c] = x[n, index[n, i, j, c], c]: max pooling with the winners of an earlier forward.
/// The transpose of max_pool2d_backward, hence its derivative.
template <std::floating_point T>
void max_pool2d_gather(const Pool2dGeometry& geometry, std::span<const T> x,
                       std::span<const std::int32_t> index, std::span<T> y);

/// y = sum of each window / divisor. With count_include_pad the divisor is the part of the window
/// inside the padded image, otherwise the part inside the image.
template <std::floating_point T>
void avg_pool2d_forward(const Pool2dGeometry& geometry, bool count_include_pad,
                        std::span<const T> x, std::span<T> y);

/// dx = the transpose of the forward applied to dy; every element of dx is assigned. The forward is
/// linear, so its second derivative needs no other kernel.
template <std::floating_point T>
void avg_pool2d_backward(const Pool2dGeometry& geometry, bool count_include_pad,
                         std::span<const T> dy, std::span<T> dx);

}  // namespace steady::kernels
