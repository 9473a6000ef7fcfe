#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

namespace steady::kernels {

/// Extents of a row-major tensor, outermost first.
using Extents = std::span<const std::int64_t>;

inline constexpr int MaxAxes = 8;

/// How up to three row-major operands are read to fill one row-major result of their NumPy
/// broadcast shape. Axes of extent 1 are dropped and neighbours that every operand walks alike are
/// merged, so the same shape is one axis, [..., D] with [D] or with [..., 1] two.
struct Broadcast {
  static constexpr int MaxOperands = 3;

  int operands = 0;
  int rank = 1;  ///< >= 1 after merging
  std::int64_t numel = 0;
  std::array<std::int64_t, MaxAxes> extent{};  ///< [0, rank), outermost first
  /// Elements to step per axis: 0 on a broadcast axis. On the last axis 0 or 1.
  std::array<std::array<std::int64_t, MaxAxes>, MaxOperands> stride{};
  std::array<std::int64_t, MaxOperands> size{};  ///< elements of each operand

  [[nodiscard]] std::int64_t width() const { return extent[static_cast<std::size_t>(rank - 1)]; }
  [[nodiscard]] bool same_shape() const { return rank == 1 && all_walk_last_axis(); }
  [[nodiscard]] bool all_walk_last_axis() const;
};

/// Plan for two or three operands. Throws ShapeError naming `op` when they do not broadcast.
[[nodiscard]] Broadcast make_broadcast(std::initializer_list<Extents> operands,
                                       const char* op = "broadcast");

/// A walk over the rows (last axis) of a plan, from element `begin` of the result to `end`:
/// row(offset of y, offsets of the operands, count) for each maximal piece of a row.
template <class Row>
void for_each_row(const Broadcast& plan, std::int64_t begin, std::int64_t end, Row&& row) {
  if (begin >= end) return;
  using Index = std::size_t;
  const Index last = static_cast<Index>(plan.rank - 1);
  std::array<std::int64_t, MaxAxes> at{};
  std::array<std::int64_t, Broadcast::MaxOperands> offset{};  // of the row's first element
  std::int64_t rest = begin;
  for (Index axis = last + 1; axis-- > 0;) {
    at[axis] = rest % plan.extent[axis];
    rest /= plan.extent[axis];
    if (axis == last) continue;
    for (Index k = 0; k < offset.size(); ++k) offset[k] += at[axis] * plan.stride[k][axis];
  }
  std::int64_t column = at[last];
  for (std::int64_t y = begin; y < end;) {
    const std::int64_t count = std::min(plan.extent[last] - column, end - y);
    std::array<std::int64_t, Broadcast::MaxOperands> first = offset;
    for (Index k = 0; k < first.size(); ++k) first[k] += column * plan.stride[k][last];
    row(y, first, count);
    y += count;
    column = 0;
    for (Index axis = last; axis-- > 0;) {
      for (Index k = 0; k < offset.size(); ++k) offset[k] += plan.stride[k][axis];
      if (++at[axis] < plan.extent[axis]) break;
      for (Index k = 0; k < offset.size(); ++k)
        offset[k] -= plan.extent[axis] * plan.stride[k][axis];
      at[axis] = 0;
    }
  }
}

}  // namespace steady::kernels
