#pragma once

#include <algorithm>
#include <cstdint>
#include <steadygrad/core/kernels/pooling.hpp>

namespace steady::kernels {

/// The taps of one window along one axis that lie inside the image: positions begin, begin + step,
/// ... below end. `padded` is the length of the window's part inside the padded image.
struct Taps {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t step;
  std::int64_t padded;
  [[nodiscard]] std::int64_t count() const { return (end - begin + step - 1) / step; }
};

/// axis 0 is vertical; `out` is the output's row or column.
[[nodiscard]] inline Taps taps(const Pool2dGeometry& g, std::size_t axis, std::int64_t out) {
  const std::int64_t extent = axis == 0 ? g.height : g.width;
  const std::int64_t step = g.dilation[axis];
  const std::int64_t start = out * g.stride[axis] - g.padding[axis];
  const std::int64_t stop = start + step * (g.kernel[axis] - 1) + 1;
  const std::int64_t skipped = start < 0 ? (-start + step - 1) / step : 0;
  return {start + skipped * step, std::min(stop, extent), step,
          std::min(stop, extent + g.padding[axis]) - start};
}

/// One row of windows of max_pool2d_forward, float32: rows is an image [H, W, C] without what lies
/// above row `top`, y and index are [Wo, C].
void max_pool_row_simd(const Pool2dGeometry& g, const float* rows, std::int64_t top,
                       std::int64_t out_row, float* y, std::int32_t* index);

/// One row of windows of max_pool2d_backward where windows do not overlap: assigns every element of
/// the windows, 0 where it did not win. dy and index are [Wo, C], rows is dx of one image from row
/// `top` on.
void max_pool_row_backward_simd(const Pool2dGeometry& g, const float* dy, const std::int32_t* index,
                                std::int64_t out_row, float* rows, std::int64_t top);

}  // namespace steady::kernels
