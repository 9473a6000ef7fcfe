#pragma once

#include <cstdint>
#include <steadygrad/core/kernels/convolution.hpp>

/// Weight gradients of convolutions that are three wide, from panels of x and dy, float32:
///   dw[a, b, c, k] = sum over n, i, j of x[n, i*sh + a - ph, j*sw + b - pw, c] * dy[n, i, j, k]
/// For processors with AVX2 and no AVX-512, where oneDNN's kernels reach three quarters of the
/// speed of a product of matrices; these reach nine tenths.
namespace steady::kernels {

/// Whether these kernels serve here: a kernel three wide and at most 16 tall, not dilated, not
/// grouped, an even number of input channels, output channels a multiple of 16, a padding no larger
/// than the kernel, images of at most 2^24 elements with it and of at least 16 output pixels; never
/// off AVX2.
[[nodiscard]] bool weight_panels_serve(const Conv2dGeometry& geometry);

/// Elements of working memory for one call.
[[nodiscard]] std::int64_t weight_panels_workspace(const Conv2dGeometry& geometry);

/// Assigns dw [kh, 3, C, K] from `images` images of x and dy, on the calling thread.
void weight_panels(const Conv2dGeometry& geometry, std::int64_t images, const float* x,
                   const float* dy, float* dw, float* workspace);

}  // namespace steady::kernels
