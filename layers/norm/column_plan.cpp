#include <algorithm>
#include <numeric>
#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/column_plan.hpp>

namespace steady::detail {

ColumnPlan::ColumnPlan(const ColumnShape& shape)
    : channels(shape.channels),
      period(shape.channels),
      column_blocks((shape.channels + ColumnBlock - 1) / ColumnBlock) {
  constexpr std::int64_t Lanes = 16;  // a full vector of the widest target
  constexpr std::int64_t Line = 64;   // a full strip
  constexpr std::int64_t LineLimit = 512;
  constexpr std::int64_t ChunkElements = 65536;
  constexpr std::int64_t ChunkLimit = 64;
  if (shape.rows == 0) return;
  const std::int64_t even = std::lcm(channels, Lanes);
  if (even <= LineLimit) {
    const std::int64_t wanted = even * std::max<std::int64_t>(Line / even, 1) / channels;
    if (shape.rows >= 4 * wanted) fold = wanted;
  }
  period = fold * channels;
  lines = shape.rows / fold;
  rest_rows = shape.rows % fold;
  chunk_lines = std::max({(ChunkElements + period - 1) / period,
                          (lines + ChunkLimit - 1) / ChunkLimit, std::int64_t{64}});
  chunks = (lines + chunk_lines - 1) / chunk_lines;
}

void ColumnPlan::check(const char* op, const ColumnShape& shape) {
  STEADY_CHECK(ShapeError, shape.rows >= 0 && shape.channels >= 1,
               "{}: needs rows >= 0 and channels >= 1; got rows {}, channels {}", op, shape.rows,
               shape.channels);
}

}  // namespace steady::detail
