#pragma once

#include <steadygrad/core/tensor.hpp>

namespace steady {

/// Options of matmul. A transposed operand is read with its last two axes swapped, without a copy.
struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};

/// Matrix product with NumPy's rules: y[..., i, j] = sum_k a[..., i, k] * b[..., k, j].
/// a: [..., m, k] or [k]; b: [..., k, n] or [k]; f32 or f64, of one dtype. Leading axes broadcast;
/// a vector is a row on the left and a column on the right, and its unit axis is dropped from y.
/// Differentiable to any order. Throws ShapeError for scalars, inner extents that differ, batches
/// that do not broadcast, mixed dtypes, and a transposed vector.
[[nodiscard]] Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options = {});

/// y = x W^T + bias, over the last axis. x: [..., in]; weight W: [out, in]; bias: [out] or
/// undefined; y: [..., out]. Backward: dx = dy W, dW = dy^T x, dbias = sum of dy over all rows.
/// Differentiable to any order. Throws ShapeError when shapes or dtypes do not fit.
[[nodiscard]] Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace steady
