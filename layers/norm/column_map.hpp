#pragma once

#include <steadygrad/core/tensor.hpp>

namespace steady {

/// y = (x - shift) / scale * gain + offset per feature, computed in double and rounded once.
/// x, y: [..., features], f32 or f64. map: f64 [4, features], the rows shift, scale, gain and
/// offset, constants to the derivatives. Differentiable to any order by x. Throws ShapeError when
/// shapes or dtypes do not fit.
[[nodiscard]] Tensor column_map(const Tensor& x, const Tensor& map);

}  // namespace steady
