#include <steadygrad/core/kernels/pooling_taps.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/pooling_simd.cpp"
#include <hwy/foreach_target.h>

#include <steadygrad/core/kernels/simd-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

using Index = std::int64_t;
using kernels::Pool2dGeometry;
using kernels::Taps;

/// The pixels of one window inside the image, by distances: in floats for memory that begins at row
/// `top`, in pixels for an index.
struct Window {
  HWY_INLINE Window(const Pool2dGeometry& g, Index top, const Taps& rows, const Taps& columns)
      : row_count(rows.count()),
        column_count(columns.count()),
        first(static_cast<std::int32_t>(rows.begin * g.width + columns.begin)),
        row_step(static_cast<std::int32_t>(rows.step * g.width)),
        column_step(static_cast<std::int32_t>(columns.step)),
        origin((first - top * g.width) * g.channels),
        row_floats(rows.step * g.width * g.channels),
        column_floats(columns.step * g.channels) {}

  /// The window `columns` further to the right, where both lie inside the image.
  HWY_INLINE void move(Index columns, Index channels) {
    first += static_cast<std::int32_t>(columns);
    origin += columns * channels;
  }

  Index row_count, column_count;
  std::int32_t first, row_step, column_step;
  Index origin, row_floats, column_floats;
};

/// One vector of channels of one window; x points at its place in pixel 0. The old maximum stays
/// when the new value is not above it or when it is NaN already, so the first of equals and the
/// first NaN win.
template <class Access>
HWY_INLINE void max_vector(const Window& window, const float* x, Access access, float* y,
                           std::int32_t* index) {
  const Tag<std::int32_t> d;
  const float* row = x + window.origin;
  std::int32_t row_position = window.first;
  Vec<float> best = load(row, access);
  Vec<std::int32_t> winner = fill(row_position);
  for (Index a = 0; a < window.row_count; ++a) {
    const float* pixel = row;
    std::int32_t position = row_position;
    for (Index b = 0; b < window.column_count; ++b) {
      const Vec<float> value = load(pixel, access);
      const auto take = hn::AndNot(hn::Le(value, best), hn::Eq(best, best));
      best = hn::IfThenElse(take, value, best);
      winner = hn::IfThenElse(hn::RebindMask(d, take), fill(position), winner);
      pixel += window.column_floats;
      position += window.column_step;
    }
    row += window.row_floats;
    row_position += window.row_step;
  }
  store<float>(best, y, access);
  store<std::int32_t>(winner, index, access);
}

/// The same vector of the gradient: dy goes to the winner, 0 to the rest of the window.
template <class Access>
HWY_INLINE void spread_vector(const Window& window, const float* dy, const std::int32_t* index,
                              Access access, float* dx) {
  const Tag<float> d;
  const Vec<float> gradient = load(dy, access);
  const Vec<std::int32_t> winner = load(index, access);
  float* row = dx + window.origin;
  std::int32_t row_position = window.first;
  for (Index a = 0; a < window.row_count; ++a) {
    float* pixel = row;
    std::int32_t position = row_position;
    for (Index b = 0; b < window.column_count; ++b) {
      const auto won = hn::Eq(winner, fill(position));
      store<float>(hn::IfThenElseZero(hn::RebindMask(d, won), gradient), pixel, access);
      pixel += window.column_floats;
      position += window.column_step;
    }
    row += window.row_floats;
    row_position += window.row_step;
  }
}

/// Calls body(j, c, window, access) for the vectors of channels of the windows of one row.
template <class Body>
HWY_INLINE void for_windows(const Pool2dGeometry& g, Index top, Index out_row, Body&& body) {
  const Taps rows = kernels::taps(g, 0, out_row);
  const Index out_width = g.out_width(), channels = g.channels, step = lanes<float>();
  const Taps last = kernels::taps(g, 1, out_width - 1);
  // All windows lie wholly inside the image: they differ in their place alone.
  const bool inside = g.padding[1] == 0 && last.count() == g.kernel[1];
  Window window(g, top, rows, kernels::taps(g, 1, 0));
  for (Index j = 0; j < out_width; ++j) {
    if (j > 0 && inside) window.move(g.stride[1], channels);
    if (j > 0 && !inside) window = Window(g, top, rows, kernels::taps(g, 1, j));
    Index c = 0;
    for (; c + step <= channels; c += step) body(j, c, window, Whole{});
    if (c < channels) body(j, c, window, Part{channels - c});
  }
}

HWY_FLATTEN void max_row(const Pool2dGeometry& g, const float* memory, Index top, Index out_row,
                         float* y, std::int32_t* index) {
  const Index channels = g.channels;
  for_windows(g, top, out_row, [=](Index j, Index c, const Window& window, auto access) HWY_ATTR {
    max_vector(window, memory + c, access, y + j * channels + c, index + j * channels + c);
  });
}

HWY_FLATTEN void spread_row(const Pool2dGeometry& g, const float* dy, const std::int32_t* index,
                            Index out_row, float* memory, Index top) {
  const Index channels = g.channels;
  for_windows(g, top, out_row, [=](Index j, Index c, const Window& window, auto access) HWY_ATTR {
    spread_vector(window, dy + j * channels + c, index + j * channels + c, access, memory + c);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace steady {
namespace {
HWY_EXPORT(max_row);
HWY_EXPORT(spread_row);
}  // namespace

namespace kernels {

void max_pool_row_simd(const Pool2dGeometry& g, const float* rows, std::int64_t top,
                       std::int64_t out_row, float* y, std::int32_t* index) {
  HWY_DYNAMIC_DISPATCH(max_row)(g, rows, top, out_row, y, index);
}

void max_pool_row_backward_simd(const Pool2dGeometry& g, const float* dy, const std::int32_t* index,
                                std::int64_t out_row, float* rows, std::int64_t top) {
  HWY_DYNAMIC_DISPATCH(spread_row)(g, dy, index, out_row, rows, top);
}

}  // namespace kernels
}  // namespace steady
#endif
