#pragma once

#include <cstdint>
#include <optional>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/norm/column_stats.hpp>
#include <string>
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
/// variance says nothing), and when a parameter has another shape. With `relu` y is relu(y), to the
/// bit, in the same passes forward and backward (for gradients that are finite).
[[nodiscard]] BatchNormResult batch_norm(const Tensor& x, const Tensor& weight = {},
                                         const Tensor& bias = {}, double eps = 1e-5,
                                         bool relu = false);

/// max_pool2d(batch_norm(x, ..., relu = true), kernel), to the bit. The array between the two does
/// not exist, nor does its gradient, unless a backward is recorded. x: [N, H, W, C], H and W
/// multiples of `kernel`; y: [N, H/kernel, W/kernel, C]. Throws ShapeError otherwise, and what
/// batch_norm throws.
[[nodiscard]] BatchNormResult batch_norm_relu_pool(const Tensor& x, const Tensor& weight,
                                                   const Tensor& bias, double eps,
                                                   std::int64_t kernel);

/// The same equation with given statistics, which are constants to the derivatives (eval, frozen).
/// running_mean, running_var: [C]; they may not require a gradient (Error). Any number of rows.
[[nodiscard]] Tensor batch_norm_eval(const Tensor& x, const Tensor& running_mean,
                                     const Tensor& running_var, const Tensor& weight = {},
                                     const Tensor& bias = {}, double eps = 1e-5, bool relu = false);

/// Batch normalization with learned weight (ones at first) and bias (zeros) and running statistics.
///
/// Train: normalizes with the batch's statistics (biased variance) and, after all checks passed,
///   running = (1 - momentum) * running + momentum * batch     (UNBIASED variance of the batch)
/// once per forward, num_batches_tracked counting up. Not for a batch without rows, and not while
/// a NoStateUpdate is alive (probes, recomputation, gradient checks).
/// Eval and frozen: normalizes with the running statistics, which are constants to the gradient.
/// Without running statistics every mode uses the batch's.
///
/// The mode alone decides, never the batch size. Parameters that require no gradient do not stop
/// the statistics, which are no parameters: freeze() stops both until unfreeze(), whatever train()
/// a parent gets. The mode of a backward is the mode at its forward.
class BatchNorm : public Layer {
 public:
  struct Options {
    std::int64_t features = 0;             ///< extent of x's last axis
    double eps = 1e-5;                     ///< >= 0, inside the root
    std::optional<double> momentum = 0.1;  ///< weight of the NEW batch, in [0, 1]; nullopt: running
                                           ///< is the average of all batches, each counted once
    bool affine = true;                    ///< false: neither weight nor bias
    bool bias = true;                      ///< false: a weight alone
    bool track_running_stats = true;       ///< false: no running statistics
    bool check_finite = true;  ///< refuse an update that would put NaN or infinity into a buffer
    bool sync = false;         ///< statistics of the batches of all ranks together
  };
  /// Throws Error for features < 1, a bad eps and a momentum outside [0, 1].
  explicit BatchNorm(const Options& options);

  /// x: [..., features] of rank >= 2. Throws ShapeError for another shape, and where batch
  /// statistics are used for one value per channel; with check_finite NonFiniteError naming channel
  /// and step, all buffers unchanged. Without it a channel that is not finite spoils its own
  /// statistics for good, and no other's.
  Tensor forward(const Tensor& x) override;
  /// relu(forward(x)) in one pass: a call like the call operator's, whose observers see the result
  /// of the ReLU. norm_relu() is for norms of any kind.
  Tensor with_relu(const Tensor& x);
  /// max_pool2d(relu(forward(x)), kernel), in the passes of the norm where the statistics are those
  /// of this rank's batch, H and W are multiples of the kernel and kernel * W * C <= 32768.
  /// Observers see the result of the pooling. norm_relu_pool() is for norms of any kind.
  Tensor with_relu_and_pool(const Tensor& x, std::int64_t kernel);
  /// rstd_min, rstd_max: range of 1 / sqrt(var + eps) over the channels, of the statistics in use.
  /// normalized_mean, _std, _skewness, _kurtosis (3 for a normal distribution): moments of
  /// (x - mean) * rstd over all elements. With running statistics, as the forward left them:
  /// running_mean_gap, the RMS over the channels of (batch mean - running mean) / sqrt(running var
  /// + eps), and running_var_ratio_min, _max, the range of (batch var + eps) / (running var + eps),
  /// the batch's variance unbiased.
  void measure(const Tensor& x, const MeasureSink& sink) const override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::string statistics() const override;
  /// Where batch statistics are used, they are those of the joined batch of all ranks of
  /// distributed::world(): a forward and its backward are then collectives (sync_batch_norm). The
  /// running statistics stay the same on all ranks. With one rank, and in eval and frozen mode,
  /// nothing changes; measures stay those of this rank. At first what Options::sync says.
  void synchronize(bool on = true) { sync_ = on; }
  [[nodiscard]] bool synchronized() const { return sync_; }

  const Options o;
  Tensor& weight;               ///< [features], Role::NormScale; undefined without affine
  Tensor& bias;                 ///< [features], Role::NormShift; undefined without affine or bias
  Tensor& running_mean;         ///< [features], zeros at first; undefined without tracking
  Tensor& running_var;          ///< [features], ones at first
  Tensor& num_batches_tracked;  ///< i64 scalar: training forwards that updated

 private:
  [[nodiscard]] bool uses_running_statistics() const;
  Tensor normalize(const Tensor& x, bool relu);
  Tensor updated(BatchNormResult result);
  void update_statistics(const std::vector<Moments>& moments);
  void on_clone(const Module& original) override;

  bool sync_;
};

}  // namespace steady
