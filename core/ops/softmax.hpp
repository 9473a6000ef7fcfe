#pragma once

#include <steadygrad/core/tensor.hpp>

namespace steady {

/// y = exp(x - max) / sum(exp(x - max)) along `axis` (negative: from the end). x, y: one shape, f32
/// or f64. -inf beside a finite value gives exactly 0; a slice of nothing but -inf is NaN.
/// Differentiable to any order. Throws ShapeError for integers, scalars and an axis out of range.
[[nodiscard]] Tensor softmax(const Tensor& x, int axis = -1);

/// y = x - max - log(sum(exp(x - max))) along `axis`; as softmax otherwise.
[[nodiscard]] Tensor log_softmax(const Tensor& x, int axis = -1);

}  // namespace steady
