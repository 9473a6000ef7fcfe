#pragma once

#include <steadygrad/core/shape.hpp>
#include <steadygrad/core/tensor.hpp>

namespace steady {

/// Layer normalization                                  [Ba, Kiros & Hinton 2016, eq. 4]
///   y = (x - mean) / sqrt(var + eps) * weight + bias
/// mean and var (biased: divided by the number of elements) are of one row: the trailing axes that
/// `normalized_shape` names. x, y: [..., *normalized_shape], f32 or f64. weight, bias: exactly
/// normalized_shape, or undefined (1 and 0). eps >= 0 stands inside the root.
/// Same in train and eval. First and second derivatives by x, weight and bias; a third is refused.
/// Throws ShapeError when x does not end in normalized_shape or a parameter has another shape.
[[nodiscard]] Tensor layer_norm(const Tensor& x, const Shape& normalized_shape,
                                const Tensor& weight = {}, const Tensor& bias = {},
                                double eps = 1e-5);

/// Layer normalization of whole samples with a gain per channel   [Wu & He 2018, one group]
/// The same equation; mean and var are of all elements of one sample. x, y: [N, ..., C] of rank
/// >= 2, images [N, H, W, C]. weight, bias: exactly [C], or undefined.
[[nodiscard]] Tensor layer_norm_over_sample(const Tensor& x, const Tensor& weight = {},
                                            const Tensor& bias = {}, double eps = 1e-5);

}  // namespace steady
