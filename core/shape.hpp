#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace steady {

/// The extents of a tensor, outermost first; the feature axis is the last. Rank 0 is a scalar.
/// A plain value without heap memory: at most MaxRank axes, every extent >= 0, and a product that
/// fits int64 (checked at construction, zero extents aside).
class Shape {
 public:
  static constexpr int MaxRank = 8;

  constexpr Shape() = default;
  /// Throws ShapeError for a negative extent, more than MaxRank axes or an overflowing product.
  Shape(std::initializer_list<std::int64_t> extents);
  explicit Shape(std::span<const std::int64_t> extents);

  [[nodiscard]] int rank() const { return rank_; }
  /// Extent of `axis`; negative axes count from the end. Throws ShapeError out of range.
  [[nodiscard]] std::int64_t operator[](int axis) const;
  /// `axis` in 0 .. rank-1 for a possibly negative one; throws ShapeError naming `op`.
  [[nodiscard]] int axis(int axis, const char* op) const;
  /// Number of elements; 1 for a scalar.
  [[nodiscard]] std::int64_t numel() const { return numel(0, rank_); }
  /// Product of the extents [begin, end).
  [[nodiscard]] std::int64_t numel(int begin, int end) const {
    std::int64_t product = 1;
    for (int i = begin; i < end; ++i) product *= extents_[static_cast<std::size_t>(i)];
    return product;
  }

  [[nodiscard]] const std::int64_t* begin() const { return extents_.data(); }
  [[nodiscard]] const std::int64_t* end() const { return extents_.data() + rank_; }
  [[nodiscard]] std::span<const std::int64_t> extents() const {
    return {extents_.data(), static_cast<std::size_t>(rank_)};
  }

  /// Copies with one axis changed, inserted or removed.
  [[nodiscard]] Shape with(int axis, std::int64_t extent) const;
  [[nodiscard]] Shape without(int axis) const;
  [[nodiscard]] Shape appended(std::int64_t extent) const;
  /// Extents [begin, end) as a shape.
  [[nodiscard]] Shape slice(int begin, int end) const;

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (std::size_t i = 0; i < static_cast<std::size_t>(a.rank_); ++i) {
      if (a.extents_[i] != b.extents_[i]) return false;
    }
    return true;
  }

 private:
  std::array<std::int64_t, MaxRank> extents_{};
  int rank_ = 0;
};

/// "[2, 3]"; "[]" for a scalar.
[[nodiscard]] std::string to_string(const Shape& shape);

/// The NumPy broadcast of two shapes; throws ShapeError naming `op` and both shapes.
[[nodiscard]] Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op);

}  // namespace steady
