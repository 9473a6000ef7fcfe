#include <algorithm>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/pooling.hpp>
#include <steadygrad/core/kernels/pooling_taps.hpp>
#include <steadygrad/core/parallel.hpp>

namespace steady::kernels {
namespace {

using Index = std::int64_t;

/// Elements a chunk should touch at least, so that a parallel region pays.
constexpr Index ChunkElements = 32768;

[[nodiscard]] Index rows_per_chunk(Index row_elements) {
  return std::max<Index>(1, ChunkElements / std::max<Index>(1, row_elements));
}

void check_axis(const char* op, const Pool2dGeometry& g, std::size_t axis) {
  const Index extent = axis == 0 ? g.height : g.width;
  STEADY_CHECK(ShapeError, g.kernel[axis] >= 1 && g.stride[axis] >= 1 && g.dilation[axis] >= 1,
               "{}: kernel, stride and dilation must be at least 1; got kernel {}, stride {}, "
               "dilation {}",
               op, g.kernel[axis], g.stride[axis], g.dilation[axis]);
  constexpr Index Limit = std::numeric_limits<std::int32_t>::max();
  STEADY_CHECK(ShapeError, std::max({g.kernel[axis], g.stride[axis], g.dilation[axis]}) < Limit,
               "{}: kernel, stride and dilation must be below 2^31; got {}, {}, {}", op,
               g.kernel[axis], g.stride[axis], g.dilation[axis]);
  STEADY_CHECK(ShapeError, g.padding[axis] >= 0 && g.padding[axis] <= g.kernel[axis] / 2,
               "{}: padding must be between 0 and kernel / 2; got padding {}, kernel {}", op,
               g.padding[axis], g.kernel[axis]);
  const Index out = axis == 0 ? g.out_height() : g.out_width();
  STEADY_CHECK(ShapeError, out >= 1,
               "{}: window is larger than the padded image; got extent {}, kernel {}, padding {}, "
               "dilation {}",
               op, extent, g.kernel[axis], g.padding[axis], g.dilation[axis]);
  // Only windows that start in the leading padding can miss the image.
  for (Index i = 0; i < out && i * g.stride[axis] < g.padding[axis]; ++i) {
    STEADY_CHECK(ShapeError, taps(g, axis, i).begin < extent,
                 "{}: a window lies wholly in the padding; got extent {}, kernel {}, padding {}, "
                 "dilation {}",
                 op, extent, g.kernel[axis], g.padding[axis], g.dilation[axis]);
  }
}

void check_size(const char* op, const char* name, std::size_t got, Index want) {
  STEADY_CHECK(ShapeError, got == static_cast<std::size_t>(want),
               "{}: {} must have {} elements; got {}", op, name, want, got);
}

/// Whether a value takes the place of the maximum so far: larger, or the window's first NaN.
template <class T>
[[nodiscard]] bool replaces(T value, T best) {
  return !(value <= best) && best == best;
}

// Below, `memory` is an image without what lies above row `top`.

/// Every element has its own scan: fast enough for float64.
void max_row(const Pool2dGeometry& g, const double* memory, Index top, Index out_row, double* y,
             std::int32_t* index) {
  const Taps rows = taps(g, 0, out_row);
  const auto at = [&](Index pixel, Index c) {
    return memory[(pixel - top * g.width) * g.channels + c];
  };
  for (Index j = 0; j < g.out_width(); ++j) {
    const Taps columns = taps(g, 1, j);
    for (Index c = 0; c < g.channels; ++c, ++y, ++index) {
      Index winner = rows.begin * g.width + columns.begin;
      for (Index h = rows.begin; h < rows.end; h += rows.step)
        for (Index w = columns.begin; w < columns.end; w += columns.step)
          if (replaces(at(h * g.width + w, c), at(winner, c))) winner = h * g.width + w;
      *y = at(winner, c);
      *index = static_cast<std::int32_t>(winner);
    }
  }
}

void max_row(const Pool2dGeometry& g, const float* memory, Index top, Index out_row, float* y,
             std::int32_t* index) {
  max_pool_row_simd(g, memory, top, out_row, y, index);
}

/// The gradient of one row of windows that cover their rows.
void spread_row(const Pool2dGeometry& g, const float* dy, const std::int32_t* index, Index out_row,
                float* memory, Index top) {
  max_pool_row_backward_simd(g, dy, index, out_row, memory, top);
}
void spread_row(const Pool2dGeometry& g, const double* dy, const std::int32_t* index, Index out_row,
                double* memory, Index top) {
  const Taps rows = taps(g, 0, out_row);
  std::fill(memory + (rows.begin - top) * g.width * g.channels,
            memory + (rows.end - top) * g.width * g.channels, 0.0);
  for (Index j = 0; j < g.out_width(); ++j, dy += g.channels, index += g.channels)
    for (Index c = 0; c < g.channels; ++c)
      memory[(index[c] - top * g.width) * g.channels + c] += dy[c];
}

/// No pixel belongs to two windows.
[[nodiscard]] bool windows_are_apart(const Pool2dGeometry& g) {
  return g.dilation[0] == 1 && g.dilation[1] == 1 && g.stride[0] >= g.kernel[0] &&
         g.stride[1] >= g.kernel[1];
}

/// Every pixel belongs to a window, when windows are apart.
[[nodiscard]] bool windows_cover(const Pool2dGeometry& g) {
  return g.stride == g.kernel && g.out_height() * g.kernel[0] >= g.height + g.padding[0] &&
         g.out_width() * g.kernel[1] >= g.width + g.padding[1];
}

/// Gradient of one image whose windows are apart.
void spread_apart(const Pool2dGeometry& g, const float* dy, const std::int32_t* index, float* dx) {
  if (!windows_cover(g)) std::fill_n(dx, g.height * g.width * g.channels, 0.0F);
  const Index out_row = g.out_width() * g.channels;
  for (Index i = 0; i < g.out_height(); ++i)
    spread_row(g, dy + i * out_row, index + i * out_row, i, dx, 0);
}

/// Gradient of one image.
template <class T>
void scatter(const Pool2dGeometry& g, const T* dy, const std::int32_t* index, T* dx) {
  std::fill_n(dx, g.height * g.width * g.channels, T{0});
  const Index out_pixels = g.out_height() * g.out_width();
  for (Index p = 0; p < out_pixels; ++p, dy += g.channels, index += g.channels)
    for (Index c = 0; c < g.channels; ++c) dx[index[c] * g.channels + c] += dy[c];
}

/// Calls f(image, out_row) for every output row, in parallel.
template <class F>
void for_each_row(const Pool2dGeometry& g, F&& f) {
  const Index out_height = g.out_height();
  const Index work = g.kernel[0] * g.width * g.channels;
  parallel_for(g.batch * out_height, rows_per_chunk(work), [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) f(row / out_height, row % out_height);
  });
}

template <class F>
void for_each_image(const Pool2dGeometry& g, F&& f) {
  parallel_for(g.batch, rows_per_chunk(g.height * g.width * g.channels),
               [&](Index begin, Index end) {
                 for (Index n = begin; n < end; ++n) f(n);
               });
}

template <class T>
[[nodiscard]] T divisor(const Taps& rows, const Taps& columns, bool count_include_pad) {
  return static_cast<T>(count_include_pad ? rows.padded * columns.padded
                                          : rows.count() * columns.count());
}

template <class T>
void average_pixel(const Pool2dGeometry& g, const Taps& rows, const Taps& columns, const T* plane,
                   T scale, T* y) {
  const Index channels = g.channels;
  std::fill_n(y, channels, T{0});
  for (Index h = rows.begin; h < rows.end; ++h) {
    for (Index w = columns.begin; w < columns.end; ++w) {
      const T* x = plane + (h * g.width + w) * channels;
#pragma omp simd
      for (Index c = 0; c < channels; ++c) y[c] += x[c];
    }
  }
#pragma omp simd
  for (Index c = 0; c < channels; ++c) y[c] /= scale;
}

template <class T>
void spread_pixel(const Pool2dGeometry& g, const Taps& rows, const Taps& columns, const T* dy,
                  T scale, T* plane) {
  const Index channels = g.channels;
  for (Index h = rows.begin; h < rows.end; ++h) {
    for (Index w = columns.begin; w < columns.end; ++w) {
      T* dx = plane + (h * g.width + w) * channels;
#pragma omp simd
      for (Index c = 0; c < channels; ++c) dx[c] += dy[c] / scale;
    }
  }
}

void check_average(const Pool2dGeometry& g) {
  g.check("avg_pool2d");
  STEADY_CHECK(ShapeError, g.dilation[0] == 1 && g.dilation[1] == 1,
               "avg_pool2d: dilation must be 1; got {}, {}", g.dilation[0], g.dilation[1]);
}

}  // namespace

std::int64_t Pool2dGeometry::out_extent(std::size_t axis, std::int64_t in) const {
  const Index room = in + 2 * padding[axis] - dilation[axis] * (kernel[axis] - 1) - 1;
  if (room < 0) return 0;
  if (!ceil_mode) return room / stride[axis] + 1;
  const Index out = (room + stride[axis] - 1) / stride[axis] + 1;
  return (out - 1) * stride[axis] >= in + padding[axis] ? out - 1 : out;
}

void Pool2dGeometry::check(const char* op) const {
  STEADY_CHECK(ShapeError, batch >= 0 && height >= 1 && width >= 1 && channels >= 0,
               "{}: needs an image [N, H, W, C]; got [{}, {}, {}, {}]", op, batch, height, width,
               channels);
  STEADY_CHECK(ShapeError, height <= std::numeric_limits<std::int32_t>::max() / width,
               "{}: a plane must have fewer than 2^31 pixels; got {} x {}", op, height, width);
  check_axis(op, *this, 0);
  check_axis(op, *this, 1);
}

template <std::floating_point T>
void max_pool2d_forward(const Pool2dGeometry& geometry, std::span<const T> x, std::span<T> y,
                        std::span<std::int32_t> index) {
  const Pool2dGeometry& g = geometry;
  g.check("max_pool2d");
  check_size("max_pool2d", "x", x.size(), g.x_size());
  check_size("max_pool2d", "y", y.size(), g.y_size());
  check_size("max_pool2d", "index", index.size(), g.y_size());
  const Index plane = g.height * g.width * g.channels;
  const Index out_row = g.out_width() * g.channels;
  for_each_row(g, [&](Index n, Index i) {
    const Index at = (n * g.out_height() + i) * out_row;
    max_row(g, x.data() + n * plane, 0, i, y.data() + at, index.data() + at);
  });
}

bool windows_tile(const Pool2dGeometry& g) {
  return g.kernel == g.stride && g.padding == std::array<Index, 2>{0, 0} &&
         g.dilation == std::array<Index, 2>{1, 1} && g.height % g.kernel[0] == 0 &&
         g.width % g.kernel[1] == 0;
}

template <std::floating_point T>
void max_pool2d_forward_bands(const Pool2dGeometry& g, Index first, Index count, const T* x, T* y,
                              std::int32_t* index) {
  const Index band = g.kernel[0] * g.width * g.channels, out_row = g.out_width() * g.channels;
  for (Index b = first; b < first + count; ++b, x += band) {
    const Index i = b % g.out_height();
    max_row(g, x, i * g.kernel[0], i, y + b * out_row, index + b * out_row);
  }
}

template <std::floating_point T>
void max_pool2d_backward_bands(const Pool2dGeometry& g, Index first, Index count, const T* dy,
                               const std::int32_t* index, T* dx) {
  const Index band = g.kernel[0] * g.width * g.channels, out_row = g.out_width() * g.channels;
  for (Index b = first; b < first + count; ++b, dx += band) {
    const Index i = b % g.out_height();
    spread_row(g, dy + b * out_row, index + b * out_row, i, dx, i * g.kernel[0]);
  }
}

template <std::floating_point T>
void max_pool2d_backward(const Pool2dGeometry& geometry, std::span<const T> dy,
                         std::span<const std::int32_t> index, std::span<T> dx) {
  const Pool2dGeometry& g = geometry;
  g.check("max_pool2d");
  check_size("max_pool2d", "dy", dy.size(), g.y_size());
  check_size("max_pool2d", "index", index.size(), g.y_size());
  check_size("max_pool2d", "dx", dx.size(), g.x_size());
  const Index plane = g.height * g.width * g.channels;
  const Index out_plane = g.out_height() * g.out_width() * g.channels;
  const bool apart = std::same_as<T, float> && windows_are_apart(g);
  for_each_image(g, [&](Index n) {
    const T* from = dy.data() + n * out_plane;
    const std::int32_t* winner = index.data() + n * out_plane;
    T* target = dx.data() + n * plane;
    if constexpr (std::same_as<T, float>) {
      if (apart) return spread_apart(g, from, winner, target);
    }
    scatter(g, from, winner, target);
  });
}

template <std::floating_point T>
void max_pool2d_gather(const Pool2dGeometry& geometry, std::span<const T> x,
                       std::span<const std::int32_t> index, std::span<T> y) {
  const Pool2dGeometry& g = geometry;
  g.check("max_pool2d");
  check_size("max_pool2d", "x", x.size(), g.x_size());
  check_size("max_pool2d", "index", index.size(), g.y_size());
  check_size("max_pool2d", "y", y.size(), g.y_size());
  const Index plane = g.height * g.width * g.channels;
  const Index out_row = g.out_width() * g.channels;
  for_each_row(g, [&](Index n, Index i) {
    const T* source = x.data() + n * plane;
    const Index begin = (n * g.out_height() + i) * out_row;
    for (Index at = begin; at < begin + out_row; at += g.channels) {
      for (Index c = 0; c < g.channels; ++c) {
        const auto e = static_cast<std::size_t>(at + c);
        y[e] = source[index[e] * g.channels + c];
      }
    }
  });
}

template <std::floating_point T>
void avg_pool2d_forward(const Pool2dGeometry& geometry, bool count_include_pad,
                        std::span<const T> x, std::span<T> y) {
  const Pool2dGeometry& g = geometry;
  check_average(g);
  check_size("avg_pool2d", "x", x.size(), g.x_size());
  check_size("avg_pool2d", "y", y.size(), g.y_size());
  const Index plane = g.height * g.width * g.channels;
  for_each_row(g, [&](Index n, Index i) {
    const Taps rows = taps(g, 0, i);
    T* out = y.data() + (n * g.out_height() + i) * g.out_width() * g.channels;
    for (Index j = 0; j < g.out_width(); ++j, out += g.channels) {
      const Taps columns = taps(g, 1, j);
      average_pixel(g, rows, columns, x.data() + n * plane,
                    divisor<T>(rows, columns, count_include_pad), out);
    }
  });
}

template <std::floating_point T>
void avg_pool2d_backward(const Pool2dGeometry& geometry, bool count_include_pad,
                         std::span<const T> dy, std::span<T> dx) {
  const Pool2dGeometry& g = geometry;
  check_average(g);
  check_size("avg_pool2d", "dy", dy.size(), g.y_size());
  check_size("avg_pool2d", "dx", dx.size(), g.x_size());
  const Index plane = g.height * g.width * g.channels;
  for_each_image(g, [&](Index n) {
    T* target = dx.data() + n * plane;
    std::fill_n(target, plane, T{0});
    const T* from = dy.data() + n * g.out_height() * g.out_width() * g.channels;
    for (Index i = 0; i < g.out_height(); ++i) {
      const Taps rows = taps(g, 0, i);
      for (Index j = 0; j < g.out_width(); ++j, from += g.channels) {
        const Taps columns = taps(g, 1, j);
        spread_pixel(g, rows, columns, from, divisor<T>(rows, columns, count_include_pad), target);
      }
    }
  });
}

template void max_pool2d_forward<float>(const Pool2dGeometry&, std::span<const float>,
                                        std::span<float>, std::span<std::int32_t>);
template void max_pool2d_backward<float>(const Pool2dGeometry&, std::span<const float>,
                                         std::span<const std::int32_t>, std::span<float>);
template void max_pool2d_gather<float>(const Pool2dGeometry&, std::span<const float>,
                                       std::span<const std::int32_t>, std::span<float>);
template void max_pool2d_forward_bands<float>(const Pool2dGeometry&, Index, Index, const float*,
                                              float*, std::int32_t*);
template void max_pool2d_backward_bands<float>(const Pool2dGeometry&, Index, Index, const float*,
                                               const std::int32_t*, float*);
template void avg_pool2d_forward<float>(const Pool2dGeometry&, bool, std::span<const float>,
                                        std::span<float>);
template void avg_pool2d_backward<float>(const Pool2dGeometry&, bool, std::span<const float>,
                                         std::span<float>);

template void max_pool2d_forward<double>(const Pool2dGeometry&, std::span<const double>,
                                         std::span<double>, std::span<std::int32_t>);
template void max_pool2d_backward<double>(const Pool2dGeometry&, std::span<const double>,
                                          std::span<const std::int32_t>, std::span<double>);
template void max_pool2d_gather<double>(const Pool2dGeometry&, std::span<const double>,
                                        std::span<const std::int32_t>, std::span<double>);
template void max_pool2d_forward_bands<double>(const Pool2dGeometry&, Index, Index, const double*,
                                               double*, std::int32_t*);
template void max_pool2d_backward_bands<double>(const Pool2dGeometry&, Index, Index, const double*,
                                                const std::int32_t*, double*);
template void avg_pool2d_forward<double>(const Pool2dGeometry&, bool, std::span<const double>,
                                         std::span<double>);
template void avg_pool2d_backward<double>(const Pool2dGeometry&, bool, std::span<const double>,
                                          std::span<double>);

}  // namespace steady::kernels
