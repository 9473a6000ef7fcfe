#pragma once

#include <steadygrad/core/shape.hpp>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/norm/squash_kernel.hpp>

// The tape glue of the element-wise stand-ins for a norm: DyT and Derf.

namespace steady::detail {

/// What the tape calls the operation and its derivatives; string literals.
struct SquashNames {
  const char* forward;
  const char* backward;
  const char* double_backward;
};

/// What it learns: alpha and shift [1], weight and bias of the shape of the last axes of x. All but
/// alpha may be undefined.
struct SquashParameters {
  Tensor alpha, shift, weight, bias;
};

/// y = f(alpha x + shift) * weight + bias with first and second derivatives by x and the
/// parameters; a third is refused. Throws as every norm does.
[[nodiscard]] Tensor squash(const SquashNames& names, Squash f, const Tensor& x,
                            const Shape& normalized_shape, const SquashParameters& parameters);

}  // namespace steady::detail
