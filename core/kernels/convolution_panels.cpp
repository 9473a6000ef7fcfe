#include <algorithm>
#include <steadygrad/core/kernels/convolution_panels.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/convolution_panels.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, which fixes the target it is read for.
#include <steadygrad/core/kernels/simd-inl.hpp>

// A block is some rows of dy, few enough that the first cache holds a panel of it: as many output
// channels as two vectors hold, of every pixel. With it go the rows of x that its windows touch,
// from a copy of the image with its padding, so that no window has to ask where it lies. A tile of
// dw, three taps of two input channels by a panel, stays in twelve registers for a whole block;
// every pixel takes six elements of x and two vectors of dy to twelve multiply-adds.

#ifndef STEADY_CORE_KERNELS_CONVOLUTION_PANELS_ONCE
#define STEADY_CORE_KERNELS_CONVOLUTION_PANELS_ONCE
namespace steady::kernels {
namespace {

using Index = std::int64_t;

constexpr Index PanelTaps = 3, PanelChannels = 2;

/// How an image and its gradient are laid out for the tiles.
struct PanelLayout {
  explicit PanelLayout(const Conv2dGeometry& g)
      : rows((g.out_height() - 1) * g.stride[0] + g.kernel[0]),
        columns((g.out_width() - 1) * g.stride[1] + PanelTaps),
        pitch(columns * g.in_channels) {
    // Rows a multiple of 1 KiB apart would share few sets of the first cache.
    if (pitch % 256 == 0) pitch += 16;
    constexpr Index BlockPixels = 400;
    const Index most = std::clamp<Index>(BlockPixels / g.out_width(), 1, g.out_height());
    const Index blocks = (g.out_height() + most - 1) / most;
    block_rows = (g.out_height() + blocks - 1) / blocks;
  }

  Index rows, columns, pitch;  ///< of the padded image; pitch in elements
  Index block_rows;            ///< output rows of a block
};

}  // namespace
}  // namespace steady::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

using kernels::Conv2dGeometry;
using kernels::PanelChannels;
using kernels::PanelLayout;
using kernels::PanelTaps;
using Index = std::int64_t;

/// A row of a tile: its sums over two vectors of output channels.
struct TileRow {
  Vec<float> low, high;

  HWY_INLINE TileRow() : low(fill(0.0F)), high(fill(0.0F)) {}
  HWY_INLINE void add(const float* x, Vec<float> dy_low, Vec<float> dy_high) {
    const Vec<float> v = fill(*x);
    low = fma(v, dy_low, low);
    high = fma(v, dy_high, high);
  }
  HWY_INLINE void add_to(float* dw) const {
    const Index n = lanes<float>();
    store(hn::Add(load(dw, Whole{}), low), dw, Whole{});
    store(hn::Add(load(dw + n, Whole{}), high), dw + n, Whole{});
  }
};

/// Adds to a tile of dw what the rows of a block give it. x: the first tap of the tile's first
/// channel at the block's first pixel; dy: a panel, pixel after pixel.
HWY_INLINE void add_tile(const Conv2dGeometry& g, const PanelLayout& layout, Index rows,
                         const float* x, const float* dy, float* dw) {
  const Index width = g.out_width(), panel = 2 * lanes<float>(), channels = g.in_channels;
  const Index next = g.stride[1] * channels, next_row = g.stride[0] * layout.pitch;
  TileRow a0, a1, b0, b1, c0, c1;  // taps a, b, c of two channels
  for (Index i = 0; i < rows; ++i) {
    const float* at = x + i * next_row;
    for (Index j = 0; j < width; ++j) {
      const Vec<float> low = load(dy, Whole{});
      const Vec<float> high = load(dy + panel / 2, Whole{});
      a0.add(at, low, high);
      a1.add(at + 1, low, high);
      b0.add(at + channels, low, high);
      b1.add(at + channels + 1, low, high);
      c0.add(at + 2 * channels, low, high);
      c1.add(at + 2 * channels + 1, low, high);
      at += next;
      dy += panel;
    }
  }
  const Index row = g.out_channels, tap = channels * row;
  a0.add_to(dw);
  a1.add_to(dw + row);
  b0.add_to(dw + tap);
  b1.add_to(dw + tap + row);
  c0.add_to(dw + 2 * tap);
  c1.add_to(dw + 2 * tap + row);
}

/// dy of `pixels` pixels, panel after panel.
HWY_INLINE void pack_block(const Conv2dGeometry& g, Index pixels, const float* dy, float* packed) {
  const Index n = lanes<float>(), panel = 2 * n;
  for (Index p = 0; p < pixels; ++p, dy += g.out_channels) {
    float* to = packed + p * panel;
    for (Index k = 0; k < g.out_channels; k += panel, to += pixels * panel) {
      store(load(dy + k, Whole{}), to, Whole{});
      store(load(dy + k + n, Whole{}), to + n, Whole{});
    }
  }
}

/// Copies an image into the middle of its padding, which stays as it is.
void place_image(const Conv2dGeometry& g, const PanelLayout& layout, const float* x,
                 float* padded) {
  const Index columns = std::min(g.width, layout.columns - g.padding[1]);
  if (columns <= 0) return;
  const Index rows = std::min(g.height, layout.rows - g.padding[0]);
  for (Index h = 0; h < rows; ++h)
    std::copy_n(x + h * g.width * g.in_channels, columns * g.in_channels,
                padded + (h + g.padding[0]) * layout.pitch + g.padding[1] * g.in_channels);
}

Index weight_panel_width() { return HWY_TARGET == HWY_AVX2 ? 2 * lanes<float>() : 0; }

HWY_FLATTEN void weight_panels_f32(const Conv2dGeometry& g, Index images, const float* x,
                                   const float* dy, float* dw, float* workspace) {
  const PanelLayout layout(g);
  const Index panel = 2 * lanes<float>(), width = g.out_width();
  float* const padded = workspace;
  float* const packed = workspace + layout.rows * layout.pitch;
  std::fill_n(dw, g.weight_size(), 0.0F);
  std::fill_n(padded, layout.rows * layout.pitch, 0.0F);
  for (Index n = 0; n < images; ++n) {
    place_image(g, layout, x + n * g.height * g.width * g.in_channels, padded);
    for (Index first = 0; first < g.out_height(); first += layout.block_rows) {
      const Index rows = std::min(layout.block_rows, g.out_height() - first);
      const float* block = dy + (n * g.out_height() + first) * width * g.out_channels;
      pack_block(g, rows * width, block, packed);
      const float* image = padded + first * g.stride[0] * layout.pitch;
      for (Index k = 0; k < g.out_channels; k += panel)
        for (Index a = 0; a < g.kernel[0]; ++a)
          for (Index c = 0; c < g.in_channels; c += PanelChannels)
            add_tile(g, layout, rows, image + a * layout.pitch + c, packed + k * rows * width,
                     dw + (a * PanelTaps * g.in_channels + c) * g.out_channels + k);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace steady {
namespace {

HWY_EXPORT(weight_panel_width);
HWY_EXPORT(weight_panels_f32);

}  // namespace

namespace kernels {

bool weight_panels_serve(const Conv2dGeometry& g) {
  constexpr std::array<Index, 2> One{1, 1};
  constexpr Index TallestKernel = 16, FewestPixels = 16;
  constexpr double LargestImage = 1 << 24;  // elements of a copy with its padding
  const Index panel = HWY_DYNAMIC_DISPATCH(weight_panel_width)();
  if (g.kernel[0] > TallestKernel || g.padding[0] > g.kernel[0] || g.padding[1] > g.kernel[1] ||
      static_cast<double>(g.height + 2 * g.padding[0]) *
              static_cast<double>(g.width + 2 * g.padding[1]) * static_cast<double>(g.in_channels) >
          LargestImage)
    return false;
  return panel > 0 && g.out_height() * g.out_width() >= FewestPixels && g.kernel[1] == PanelTaps &&
         g.dilation == One && g.groups == 1 && g.in_channels % PanelChannels == 0 &&
         g.out_channels % panel == 0;
}

std::int64_t weight_panels_workspace(const Conv2dGeometry& g) {
  const PanelLayout layout(g);
  return layout.rows * layout.pitch + layout.block_rows * g.out_width() * g.out_channels;
}

void weight_panels(const Conv2dGeometry& g, std::int64_t images, const float* x, const float* dy,
                   float* dw, float* workspace) {
  HWY_DYNAMIC_DISPATCH(weight_panels_f32)(g, images, x, dy, dw, workspace);
}

}  // namespace kernels
}  // namespace steady
#endif
