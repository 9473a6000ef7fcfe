#include <steadygrad/core/shape.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <steadygrad/core/error.hpp>

namespace steady {

Shape::Shape(std::initializer_list<std::int64_t> extents)
    : Shape(std::span<const std::int64_t>(extents.begin(), extents.size())) {}

Shape::Shape(std::span<const std::int64_t> extents) {
  STEADY_CHECK(ShapeError, extents.size() <= MaxRank, "shape: at most {} axes; got {}", MaxRank,
               extents.size());
  std::int64_t product = 1;
  for (const std::int64_t extent : extents) {
    STEADY_CHECK(ShapeError, extent >= 0, "shape: extents must not be negative; got {}", extents);
    STEADY_CHECK(ShapeError, extent == 0 || !__builtin_mul_overflow(product, extent, &product),
                 "shape: number of elements does not fit 64 bits; got {}", extents);
  }
  std::copy(extents.begin(), extents.end(), extents_.begin());
  rank_ = static_cast<int>(extents.size());
}

std::int64_t Shape::operator[](int axis) const {
  return extents_[static_cast<std::size_t>(this->axis(axis, "shape"))];
}

int Shape::axis(int axis, const char* op) const {
  const int index = axis < 0 ? axis + rank_ : axis;
  STEADY_CHECK(ShapeError, index >= 0 && index < rank_, "{}: axis {} is out of range; got shape {}",
               op, axis, to_string(*this));
  return index;
}

Shape Shape::with(int axis, std::int64_t extent) const {
  Shape result = *this;
  result.extents_[static_cast<std::size_t>(this->axis(axis, "shape"))] = extent;
  return Shape(result.extents());
}

Shape Shape::without(int axis) const {
  const int at = this->axis(axis, "shape");
  Shape result;
  for (int i = 0; i < rank_; ++i) {
    if (i != at) result.extents_[static_cast<std::size_t>(result.rank_++)] = (*this)[i];
  }
  return result;
}

Shape Shape::appended(std::int64_t extent) const {
  STEADY_CHECK(ShapeError, rank_ < MaxRank, "shape: at most {} axes; got {} and one more", MaxRank,
               to_string(*this));
  Shape result = *this;
  result.extents_[static_cast<std::size_t>(result.rank_++)] = extent;
  return Shape(result.extents());
}

Shape Shape::slice(int begin, int end) const {
  return Shape(
      extents().subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op) {
  const int rank = std::max(a.rank(), b.rank());
  std::array<std::int64_t, Shape::MaxRank> extents{};
  for (int i = 0; i < rank; ++i) {
    const std::int64_t in_a = i < rank - a.rank() ? 1 : a[i - (rank - a.rank())];
    const std::int64_t in_b = i < rank - b.rank() ? 1 : b[i - (rank - b.rank())];
    STEADY_CHECK(ShapeError, in_a == in_b || in_a == 1 || in_b == 1,
                 "{}: shapes do not broadcast; got {} and {}", op, to_string(a), to_string(b));
    extents[static_cast<std::size_t>(i)] = in_a == 1 ? in_b : in_a;
  }
  return Shape(std::span<const std::int64_t>(extents.data(), static_cast<std::size_t>(rank)));
}

}  // namespace steady
