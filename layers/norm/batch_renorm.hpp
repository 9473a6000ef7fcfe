#pragma once

#include <cstdint>
#include <optional>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/norm/column_stats.hpp>
#include <string>
#include <vector>

namespace steady {

/// How far batch renormalization may follow the running statistics.
struct RenormLimits {
  double rmax = 3;  ///< r is clipped to [1 / rmax, rmax]; >= 1
  double dmax = 5;  ///< d is clipped to [-dmax, dmax]; >= 0
};

/// What batch_renorm makes: y, the batch's moments per channel, and the clipped corrections.
struct BatchRenormResult {
  Tensor y;
  std::vector<Moments> moments;
  Tensor r, d;  ///< [C]
};

/// Batch renormalization in training                                       [Ioffe 2017, alg. 1]
///   y = ((x - mean) / s * r + d) * weight + bias,   s = sqrt(var + eps), var biased
///   r = clip(s / S, 1 / rmax, rmax),   d = clip((mean - running_mean) / S, -dmax, dmax)
///   S = sqrt(running_var + eps)
/// mean and var are the batch's, of one channel over all rows. r and d are CONSTANTS to every
/// derivative, although they depend on x; unclipped, y is what eval mode gives. rmax = 1 with
/// dmax = 0 is batch_norm. x, y: [..., C]; weight, bias: exactly [C], or undefined. Errors as
/// batch_norm, and for limits outside their ranges.
[[nodiscard]] BatchRenormResult batch_renorm(const Tensor& x, const Tensor& running_mean,
                                             const Tensor& running_var, const RenormLimits& limits,
                                             const Tensor& weight = {}, const Tensor& bias = {},
                                             double eps = 1e-5);

/// Batch renormalization with learned weight and bias. The running statistics are BatchNorm's
/// (unbiased variance; the paper averages the deviation instead), are read before the batch updates
/// them, and can be loaded from a BatchNorm. Eval, frozen, NoStateUpdate and the other rules are
/// BatchNorm's.
///
/// `limits` is the user's to schedule: the paper trains with rmax = 1, dmax = 0, plain batch
/// normalization, until the running statistics mean something (5000 steps), and then raises them
/// step by step to 3 and 5. It starts as the options say; clone() copies it, a checkpoint has it
/// not.
class BatchRenorm : public Layer {
 public:
  struct Options {
    std::int64_t features = 0;             ///< extent of x's last axis
    double eps = 1e-5;                     ///< >= 0, inside the root
    std::optional<double> momentum = 0.1;  ///< weight of the NEW batch, in [0, 1]; nullopt: average
    bool affine = true;                    ///< false: neither weight nor bias
    bool bias = true;                      ///< false: a weight alone
    double rmax = 3;                       ///< >= 1
    double dmax = 5;                       ///< >= 0
    bool check_finite = true;              ///< refuse an update that would spoil a buffer
  };
  /// Throws Error for features < 1, a bad eps, a momentum outside [0, 1] and limits out of range.
  explicit BatchRenorm(const Options& options);

  /// x: [..., features] of rank >= 2. Errors as BatchNorm::forward.
  Tensor forward(const Tensor& x) override;
  /// rstd_min, rstd_max of the statistics in use, normalized_mean, _std, _skewness, _kurtosis of
  /// what weight and bias are applied to; in train mode also r_min, r_max, d_min, d_max.
  void measure(const Tensor& x, const MeasureSink& sink) const override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::string statistics() const override;

  const Options o;
  RenormLimits limits;          ///< in use from the next forward on
  Tensor& weight;               ///< [features], Role::NormScale; undefined without affine
  Tensor& bias;                 ///< [features], Role::NormShift; undefined without affine or bias
  Tensor& running_mean;         ///< [features], zeros at first
  Tensor& running_var;          ///< [features], ones at first
  Tensor& num_batches_tracked;  ///< i64 scalar: training forwards that updated

 protected:
  void on_clone(const Module& original) override;
};

}  // namespace steady
