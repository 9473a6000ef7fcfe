#pragma once

#include <cstdint>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/norm/column_stats.hpp>
#include <string>
#include <vector>

namespace steady {

/// What instance_norm makes: y, and count, mean and sum of squared deviations per sample and
/// channel, [N * C].
struct InstanceNormResult {
  Tensor y;
  std::vector<Moments> moments;
};

/// Instance normalization                                    [Ulyanov, Vedaldi & Lempitsky 2016]
///   y = (x - mean) / sqrt(var + eps) * weight + bias
/// mean and var (biased) are of one channel of one sample at all positions: group normalization
/// with a group per channel. x, y: [N, ..., C] of rank >= 3, images [N, H, W, C], f32 or f64.
/// weight, bias: exactly [C], or undefined (1 and 0). eps >= 0 stands inside the root. No samples
/// or positions at all are legal. First and second derivatives; a third is refused. Throws
/// ShapeError for a single position (y would be the bias whatever x is).
[[nodiscard]] InstanceNormResult instance_norm(const Tensor& x, const Tensor& weight = {},
                                               const Tensor& bias = {}, double eps = 1e-5);

/// Instance normalization, by default with neither parameters nor running statistics (PyTorch's
/// defaults): then the same in train and eval.
///
/// With running statistics: train normalizes every instance with its own statistics and updates
///   running = (1 - momentum) * running + momentum * (average over the samples)
/// with the average of the samples' means and of their UNBIASED variances, not while a
/// NoStateUpdate is alive. Eval and frozen normalize every instance with the running statistics,
/// constants to the gradient. num_batches_tracked stays as it is: PyTorch has it in its files and
/// never counts it for this norm.
class InstanceNorm : public Layer {
 public:
  struct Options {
    std::int64_t features = 0;         ///< extent of x's last axis
    double eps = 1e-5;                 ///< >= 0, inside the root
    bool affine = false;               ///< true: learn weight and bias
    bool bias = true;                  ///< false: a weight alone
    bool track_running_stats = false;  ///< true: keep running statistics
    double momentum = 0.1;             ///< weight of the NEW batch, in [0, 1]
    bool check_finite = true;          ///< refuse an update that would spoil a buffer
  };
  /// Throws Error for features < 1, a bad eps and a momentum outside [0, 1].
  explicit InstanceNorm(const Options& options);

  /// x: [N, ..., features]; errors as instance_norm, and NonFiniteError as BatchNorm::forward.
  Tensor forward(const Tensor& x) override;
  /// rstd_min, rstd_max of the statistics in use; normalized_mean, _std, _skewness, _kurtosis.
  void measure(const Tensor& x, const MeasureSink& sink) const override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::string statistics() const override;

  const Options o;
  Tensor& weight;               ///< [features], Role::NormScale; undefined without affine
  Tensor& bias;                 ///< [features], Role::NormShift; undefined without affine or bias
  Tensor& running_mean;         ///< [features], zeros at first; undefined without tracking
  Tensor& running_var;          ///< [features], ones at first
  Tensor& num_batches_tracked;  ///< i64 scalar, never counted
};

}  // namespace steady
