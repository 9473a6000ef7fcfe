#pragma once

#include <cstdint>
#include <steadygrad/core/tensor.hpp>

namespace steady {

/// Samples and their targets, in memory.
/// x: [N, ...], images as f32 [N, H, W, C]. y: [N, ...], class labels as i64 [N].
struct Dataset {
  Tensor x;
  Tensor y;

  /// N. Throws ShapeError unless x and y have it in common.
  [[nodiscard]] std::int64_t size() const;
  /// A copy of the first n samples; the same tensors when there are no more than n.
  /// Throws ShapeError for n < 1.
  [[nodiscard]] Dataset first(std::int64_t n) const;
};

/// A data set in its two customary parts.
struct TrainTest {
  Dataset train;
  Dataset test;
};

}  // namespace steady
