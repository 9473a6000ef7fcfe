#pragma once

#include <array>
#include <cstdint>
#include <steadygrad/core/tensor.hpp>

namespace steady {

/// Options of the two-dimensional poolings, each pair (vertical, horizontal) in pixels.
struct Pool2dOptions {
  std::array<std::int64_t, 2> kernel{2, 2};
  std::array<std::int64_t, 2> stride{0, 0};    ///< {0, 0}: the kernel
  std::array<std::int64_t, 2> padding{0, 0};   ///< at most half the kernel
  std::array<std::int64_t, 2> dilation{1, 1};  ///< max_pool2d only
  bool ceil_mode = false;                      ///< round the output size up
  bool count_include_pad = true;               ///< avg_pool2d only: padding counts in the divisor
};

/// Maximum of each window. x: [N, H, W, C], f32 or f64; y: [N, Ho, Wo, C]. Padding counts as -inf;
/// the first maximum in row-major order gets the gradient; a NaN wins its window. Differentiable to
/// any order. Throws ShapeError when x has another rank or the options make no sense (a window that
/// could lie wholly in the padding is refused).
[[nodiscard]] Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options);
/// Square windows side by side.
[[nodiscard]] Tensor max_pool2d(const Tensor& x, std::int64_t kernel);

/// Mean of each window; the divisor counts the pixels inside the padded image, or inside the image
/// with count_include_pad = false. Shapes and errors as for max_pool2d; dilation must be 1.
[[nodiscard]] Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options);
[[nodiscard]] Tensor avg_pool2d(const Tensor& x, std::int64_t kernel);

/// Mean over all pixels: x: [N, H, W, C] -> y: [N, C].
[[nodiscard]] Tensor global_avg_pool2d(const Tensor& x);

namespace kernels {
struct Pool2dGeometry;
}
namespace detail {

/// The gradient of max_pool2d by its input: dy scattered to the winners that its kernel told.
/// Differentiable to any order.
[[nodiscard]] Tensor max_pool2d_gradient(const kernels::Pool2dGeometry& g, const Tensor& dy,
                                         const Tensor& index);

}  // namespace detail
}  // namespace steady
