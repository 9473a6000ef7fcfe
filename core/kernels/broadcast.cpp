#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/broadcast.hpp>
#include <string>

namespace steady::kernels {
namespace {

using Index = std::size_t;

std::string list(std::initializer_list<Extents> operands) {
  std::string text;
  for (const Extents extents : operands) {
    text += text.empty() ? "[" : ", [";
    for (Index i = 0; i < extents.size(); ++i)
      text += (i == 0 ? "" : ", ") + std::to_string(extents[i]);
    text += ']';
  }
  return text;
}

/// Extent of `axis` counted in a result of `rank` axes; 1 on the axes the operand lacks.
std::int64_t extent_at(Extents extents, Index axis, Index rank) {
  const Index missing = rank - extents.size();
  return axis < missing ? 1 : extents[axis - missing];
}

/// Appends an axis, merged into the last one where every operand walks both alike.
void append(Broadcast& plan, std::int64_t extent,
            const std::array<std::int64_t, Broadcast::MaxOperands>& stride) {
  if (plan.rank > 0) {
    const auto last = static_cast<Index>(plan.rank - 1);
    bool merges = true;
    for (Index k = 0; k < stride.size(); ++k)
      merges = merges && plan.stride[k][last] == stride[k] * extent;
    if (merges) {
      plan.extent[last] *= extent;
      for (Index k = 0; k < stride.size(); ++k) plan.stride[k][last] = stride[k];
      return;
    }
  }
  const auto next = static_cast<Index>(plan.rank++);
  plan.extent[next] = extent;
  for (Index k = 0; k < stride.size(); ++k) plan.stride[k][next] = stride[k];
}

}  // namespace

bool Broadcast::all_walk_last_axis() const {
  for (int k = 0; k < operands; ++k)
    if (stride[static_cast<Index>(k)][static_cast<Index>(rank - 1)] != 1) return false;
  return true;
}

Broadcast make_broadcast(std::initializer_list<Extents> operands, const char* op) {
  STEADY_CHECK(Error, operands.size() >= 1 && operands.size() <= Broadcast::MaxOperands,
               "{}: a broadcast takes 1 to 3 operands; got {}", op, operands.size());
  Index rank = 0;
  for (const Extents extents : operands) rank = std::max(rank, extents.size());
  STEADY_CHECK(ShapeError, rank <= MaxAxes, "{}: at most {} axes; got {}", op, MaxAxes,
               list(operands));

  Broadcast plan;
  plan.operands = static_cast<int>(operands.size());
  plan.rank = 0;
  plan.numel = 1;
  plan.size.fill(0);
  std::array<std::int64_t, MaxAxes> result{};
  std::array<std::array<std::int64_t, Broadcast::MaxOperands>, MaxAxes> stride{};
  for (Index axis = 0; axis < rank; ++axis) {
    result[axis] = 1;
    for (const Extents extents : operands) {
      const std::int64_t extent = extent_at(extents, axis, rank);
      if (extent == 1) continue;
      STEADY_CHECK(ShapeError, result[axis] == 1 || result[axis] == extent,
                   "{}: shapes must broadcast (equal or 1, from the last axis); got {}", op,
                   list(operands));
      result[axis] = extent;
    }
    plan.numel *= result[axis];
  }
  Index k = 0;
  for (const Extents extents : operands) {
    std::int64_t step = 1;
    for (Index axis = rank; axis-- > 0;) {
      const std::int64_t extent = extent_at(extents, axis, rank);
      stride[axis][k] = extent == 1 ? 0 : step;
      step *= extent;
    }
    plan.size[k++] = step;
  }
  for (Index axis = 0; axis < rank; ++axis)
    if (result[axis] != 1) append(plan, result[axis], stride[axis]);
  if (plan.rank == 0) {  // one element, or none at all
    plan.rank = 1;
    plan.extent[0] = plan.numel;
    for (Index i = 0; i < operands.size(); ++i) plan.stride[i][0] = 1;
  }
  return plan;
}

}  // namespace steady::kernels
