#pragma once

#include <steadygrad/core/shape.hpp>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/norm/row_scale_kernel.hpp>

// The tape glue of the norms that multiply every row by one number: partial RMSNorm, ScaleNorm and
// L2 normalization.

namespace steady::detail {

/// What the tape calls the operation and its derivatives; string literals.
struct RowScaleNames {
  const char* forward;
  const char* backward;
  const char* double_backward;
};

/// row_scale_forward over the trailing axes `normalized_shape` of x, with first and second
/// derivatives by x and gain; a third is refused. gain: exactly `gain_shape`, or undefined; that is
/// normalized_shape, or {} for one gain for all. rule.counted is 1 .. elements of a row. Throws as
/// every norm does.
[[nodiscard]] Tensor row_scale(const RowScaleNames& names, const Tensor& x,
                               const Shape& normalized_shape, const RowScaleRule& rule,
                               const char* gain_name, const Tensor& gain, const Shape& gain_shape);

/// Gives scale_min, scale_max: the range of what the rows are multiplied by, the gain aside, and
/// the moments of the rows so multiplied.
void measure_row_scale(const MeasureSink& sink, const Tensor& x, const Shape& normalized_shape,
                       const RowScaleRule& rule);

}  // namespace steady::detail
