#pragma once

#include <cstdint>
#include <optional>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/norm/column_stats.hpp>
#include <string>
#include <vector>

namespace steady {

/// What center_batch makes: y, and the batch's moments per channel.
struct CenterBatchResult {
  Tensor y;
  std::vector<Moments> moments;
};

/// y = x - mean, the mean of one channel over all rows. x, y: [..., C] of rank >= 2, f32 or f64. No
/// rows at all is legal. Linear: a derivative of any order is itself centred. The mean is kept to
/// more digits than x has, so that a large mean costs none.
[[nodiscard]] CenterBatchResult center_batch(const Tensor& x);

/// Mean-only batch normalization                              [Salimans & Kingma 2016, section 2.3]
///   y = x - mean + bias
/// Train: mean is the batch's, and running_mean = (1 - momentum) * running_mean + momentum * mean
/// after each forward, not while a NoStateUpdate is alive nor for a batch without rows. Eval and
/// frozen: mean is running_mean, a constant to the gradient. Nothing is divided by: the paper has
/// it beside weight normalization, which fixes the scale.
class MeanOnlyBatchNorm : public Layer {
 public:
  struct Options {
    std::int64_t features = 0;             ///< extent of x's last axis
    std::optional<double> momentum = 0.1;  ///< weight of the NEW batch, in [0, 1]; nullopt: average
    bool bias = true;                      ///< false: no bias
    bool track_running_stats = true;       ///< false: every mode uses the batch's mean
    bool check_finite = true;  ///< refuse an update that would put NaN or infinity into a buffer
  };
  /// Throws Error for features < 1 and a momentum outside [0, 1].
  explicit MeanOnlyBatchNorm(const Options& options);

  /// x: [..., features] of rank >= 2. Throws ShapeError for another shape, and where the batch's
  /// mean is used for one value per channel (y would be the bias whatever x is); with check_finite
  /// NonFiniteError naming channel and step, all buffers unchanged.
  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::string statistics() const override;

  const Options o;
  Tensor& bias;                 ///< [features], Role::NormShift; undefined without bias
  Tensor& running_mean;         ///< [features], zeros at first; undefined without tracking
  Tensor& num_batches_tracked;  ///< i64 scalar: training forwards that updated

 private:
  Tensor no_variance_;
};

}  // namespace steady
