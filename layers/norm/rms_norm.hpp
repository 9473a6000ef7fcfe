#pragma once

#include <steadygrad/core/shape.hpp>
#include <steadygrad/core/tensor.hpp>

namespace steady {

/// Root mean square normalization                       [Zhang & Sennrich 2019, eq. 4]
///   y = x / sqrt(mean(x^2) + eps) * weight,  or * (1 + weight) with unit_offset (Gemma)
/// The mean is of one row: the trailing axes that `normalized_shape` names. x, y:
/// [..., *normalized_shape], f32 or f64. weight: exactly normalized_shape, or undefined (gain 1).
/// eps >= 0 stands inside the root. Same in train and eval. First and second derivatives by x and
/// weight; a third is refused. Throws ShapeError when x does not end in normalized_shape or weight
/// has another shape.
[[nodiscard]] Tensor rms_norm(const Tensor& x, const Shape& normalized_shape,
                              const Tensor& weight = {}, double eps = 1e-6,
                              bool unit_offset = false);

}  // namespace steady
