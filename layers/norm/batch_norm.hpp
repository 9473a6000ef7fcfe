#pragma once

#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/norm/column_stats.hpp>
#include <vector>

namespace steady {

/// What batch_norm makes: y, and the batch's count, mean and sum of squared deviations per channel.
struct BatchNormResult {
  Tensor y;
  std::vector<Moments> moments;
};

/// Batch normalization with the statistics of the batch (train)    [Ioffe & Szegedy 2015, alg. 1]
///   y = (x - mean) / sqrt(var + eps) * weight + bias
/// mean and var (biased: divided by the number of rows) are of one channel over all rows. x, y:
/// [..., C] of rank >= 2, f32 or f64. weight, bias: exactly [C], or undefined (1 and 0). eps >= 0
/// stands inside the root. Changes nothing: running statistics are the module's. No rows at all is
/// legal: y is empty, and the gradients of weight and bias are zero. First and second derivatives
/// by x, weight and bias; a third is refused. Throws ShapeError for one value per channel (its
/// variance says nothing), and when a parameter has another shape.
[[nodiscard]] BatchNormResult batch_norm(const Tensor& x, const Tensor& weight = {},
                                         const Tensor& bias = {}, double eps = 1e-5);

/// The same equation with given statistics, which are constants to the derivatives (eval, frozen).
/// running_mean, running_var: [C]; they may not require a gradient (Error). Any number of rows.
[[nodiscard]] Tensor batch_norm_eval(const Tensor& x, const Tensor& running_mean,
                                     const Tensor& running_var, const Tensor& weight = {},
                                     const Tensor& bias = {}, double eps = 1e-5);

}  // namespace steady
