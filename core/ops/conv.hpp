#pragma once

#include <array>
#include <cstdint>
#include <steadygrad/core/tensor.hpp>

namespace steady {

/// Options of conv2d, each (vertical, horizontal) in pixels.
struct Conv2dOptions {
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};   ///< zeros added on both sides
  std::array<std::int64_t, 2> dilation{1, 1};  ///< distance between kernel elements
  std::int64_t groups = 1;                     ///< divides both channel counts
};

/// Two-dimensional convolution (cross-correlation), features last:
///   y[n, i, j, k] = bias[k] + sum_{a, b, c} x[n, i*sh + a*dh - ph, j*sw + b*dw - pw, g*Cg + c] *
///   weight[k, c, a, b],   Cg = C / groups, g the group of k
/// x: [N, H, W, C]; weight: [K, C / groups, kh, kw] (PyTorch's order); bias: [K] or undefined;
/// y: [N, Ho, Wo, K]; f32 or f64. Differentiable to any order; the gradient of an input that needs
/// none is not computed. Throws ShapeError when shapes, dtypes or options do not fit.
[[nodiscard]] Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                            const Conv2dOptions& options = {});

}  // namespace steady
