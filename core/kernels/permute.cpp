#include <algorithm>
#include <array>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/reduce_forms.hpp>
#include <steadygrad/core/kernels/shaping.hpp>
#include <steadygrad/core/parallel.hpp>

namespace steady::kernels {
namespace {

using Index = std::size_t;

/// The axes of y, outermost first, with the steps they take in x. Axes of extent 1 are gone and
/// neighbours that are neighbours in x too are one.
struct Walk {
  std::array<std::int64_t, MaxAxes> extent{};
  std::array<std::int64_t, MaxAxes> step{};
  Index rank = 0;

  void append(std::int64_t e, std::int64_t s) {
    if (e == 1) return;
    if (rank > 0 && step[rank - 1] == s * e) {
      extent[rank - 1] *= e;
      step[rank - 1] = s;
      return;
    }
    extent[rank] = e;
    step[rank++] = s;
  }
};

Walk make_walk(Extents extents, std::span<const int> axes) {
  STEADY_CHECK(ShapeError, extents.size() <= MaxAxes && axes.size() == extents.size(),
               "permute: one axis per dimension, at most {}; got {} of {}", MaxAxes, axes.size(),
               extents.size());
  std::array<std::int64_t, MaxAxes> step{};
  std::int64_t size = 1;
  for (Index axis = extents.size(); axis-- > 0;) {
    step[axis] = size;
    size *= extents[axis];
  }
  Walk walk;
  unsigned seen = 0;
  for (const int axis : axes) {
    STEADY_CHECK(
        ShapeError,
        axis >= 0 && static_cast<Index>(axis) < extents.size() && ((seen >> axis) & 1U) == 0,
        "permute: axes must be a permutation of 0 .. {}; got axis {}",
        static_cast<int>(extents.size()) - 1, axis);
    seen |= 1U << axis;
    walk.append(extents[static_cast<Index>(axis)], step[static_cast<Index>(axis)]);
  }
  return walk;
}

constexpr std::int64_t Tile = 16;

/// A whole tile goes through a buffer: reads and writes then both take 64 bytes of a line at once.
template <class T>
void transpose_tile(const T* x, std::int64_t step, T* y, std::int64_t pitch) {
  T tile[Tile][Tile];
  for (std::int64_t j = 0; j < Tile; ++j)
    for (std::int64_t i = 0; i < Tile; ++i) tile[i][j] = x[i + j * step];
  for (std::int64_t i = 0; i < Tile; ++i) std::copy_n(tile[i], Tile, y + i * pitch);
}

/// y[r * pitch + c] = x[r + c * step] for a block of rows x columns.
template <class T>
void transpose_block(const T* x, std::int64_t step, T* y, std::int64_t pitch, std::int64_t rows,
                     std::int64_t columns) {
  for (std::int64_t c = 0; c < columns; c += Tile) {
    for (std::int64_t r = 0; r < rows; r += Tile) {
      const T* from = x + r + c * step;
      T* to = y + r * pitch + c;
      const std::int64_t height = std::min(rows - r, Tile);
      const std::int64_t width = std::min(columns - c, Tile);
      if (height == Tile && width == Tile) {
        transpose_tile(from, step, to, pitch);
        continue;
      }
      for (std::int64_t i = 0; i < height; ++i)
        for (std::int64_t j = 0; j < width; ++j) to[i * pitch + j] = from[i + j * step];
    }
  }
}

/// Offsets in x and y of the index-th combination of the axes other than `skip` and the last.
struct Offsets {
  std::int64_t x = 0;
  std::int64_t y = 0;
};
Offsets offsets(const Walk& walk, std::int64_t index, Index skip) {
  Offsets at;
  std::int64_t y_step = walk.extent[walk.rank - 1];
  for (Index axis = walk.rank - 1; axis-- > 0;) {
    if (axis != skip) {
      const std::int64_t k = index % walk.extent[axis];
      index /= walk.extent[axis];
      at.x += k * walk.step[axis];
      at.y += k * y_step;
    }
    y_step *= walk.extent[axis];
  }
  return at;
}

}  // namespace

template <class T>
void permute(std::span<const T> x, Extents extents, std::span<const int> axes, std::span<T> y) {
  const Walk walk = make_walk(extents, axes);
  std::int64_t size = 1;
  for (const std::int64_t extent : extents) size *= extent;
  STEADY_CHECK(Error, std::ssize(x) == size && std::ssize(y) == size,
               "permute: the shape asks for {} elements; got {} and {}", size, x.size(), y.size());
  if (size == 0) return;
  if (walk.rank == 0) {
    y[0] = x[0];
    return;
  }
  const Index last = walk.rank - 1;
  const std::int64_t width = walk.extent[last];
  if (walk.step[last] == 1) {  // whole rows stay together
    parallel_for(size / width, rows_per_chunk(width), [&](std::int64_t b, std::int64_t e) {
      for (std::int64_t row = b; row < e; ++row)
        std::copy_n(x.data() + offsets(walk, row, last).x, width, y.data() + row * width);
    });
    return;
  }
  // The axis that is contiguous in x against the one that is contiguous in y, in square tiles.
  const auto contiguous = static_cast<Index>(
      std::find(walk.step.begin(), walk.step.begin() + static_cast<std::ptrdiff_t>(walk.rank), 1) -
      walk.step.begin());
  const std::int64_t rows = walk.extent[contiguous];
  std::int64_t pitch = 1;
  for (Index axis = contiguous + 1; axis < walk.rank; ++axis) pitch *= walk.extent[axis];
  constexpr std::int64_t Strip = 64;
  const std::int64_t strips = (rows + Strip - 1) / Strip;
  const std::int64_t matrices = size / (rows * width);
  parallel_for(matrices * strips, rows_per_chunk(std::min(rows, Strip) * width),
               [&](std::int64_t b, std::int64_t e) {
                 for (std::int64_t task = b; task < e; ++task) {
                   const Offsets at = offsets(walk, task / strips, contiguous);
                   const std::int64_t row = task % strips * Strip;
                   transpose_block(x.data() + at.x + row, walk.step[last],
                                   y.data() + at.y + row * pitch, pitch,
                                   std::min(Strip, rows - row), width);
                 }
               });
}

template void permute(std::span<const float>, Extents, std::span<const int>, std::span<float>);
template void permute(std::span<const double>, Extents, std::span<const int>, std::span<double>);
template void permute(std::span<const std::int32_t>, Extents, std::span<const int>,
                      std::span<std::int32_t>);
template void permute(std::span<const std::int64_t>, Extents, std::span<const int>,
                      std::span<std::int64_t>);

}  // namespace steady::kernels
