#pragma once

#include <steadygrad/layers/norm/rms_norm.hpp>

namespace steady {

/// Simple root mean square normalization, SRMSNorm: RMSNorm without a gain  [Qin et al. 2023, eq.
/// 13]
///   y = x / sqrt(mean(x^2) + eps)
/// which is x / (|x| / sqrt(features)) but for eps >= 0. The mean is of one row: the trailing axes
/// that `normalized_shape` names. x, y: [..., *normalized_shape], f32 or f64. Same in train and
/// eval. First and second derivatives; a third is refused. Throws ShapeError when x does not end in
/// normalized_shape. The kernels are those of rms_norm; as a layer it is
/// RmsNorm({.normalized_shape = ..., .affine = false}).
[[nodiscard]] inline Tensor simple_rms_norm(const Tensor& x, const Shape& normalized_shape,
                                            double eps = 1e-6) {
  return rms_norm(x, normalized_shape, {}, eps);
}

}  // namespace steady
