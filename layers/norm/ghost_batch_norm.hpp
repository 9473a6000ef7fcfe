#pragma once

#include <cstdint>
#include <optional>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/norm/column_stats.hpp>
#include <string>
#include <vector>

namespace steady {

/// What ghost_batch_norm makes: y, and the moments of every virtual batch in order.
struct GhostBatchNormResult {
  Tensor y;
  std::vector<std::vector<Moments>> moments;  ///< [virtual batches][C]
};

/// Batch normalization of virtual batches                     [Hoffer, Hubara & Soudry 2017, alg.
/// 1] The samples (the first axis of x) are cut into runs of `size`, the last of which may be
/// shorter, and each run is normalized by batch_norm with its own statistics. x, y: [N, ..., C].
/// Options, derivatives and errors as batch_norm, among them the one for a run with one value per
/// channel: a last run of one sample without positions throws. Throws Error for size < 1.
[[nodiscard]] GhostBatchNormResult ghost_batch_norm(const Tensor& x, std::int64_t size,
                                                    const Tensor& weight = {},
                                                    const Tensor& bias = {}, double eps = 1e-5);

/// Ghost batch normalization: in training every virtual batch of `size` samples has statistics of
/// its own, however large the batch is. The running statistics are updated by each virtual batch in
/// its order, as if they had come one after the other (the paper's rule): momentum is the weight of
/// one virtual batch, and num_batches_tracked counts virtual batches. A batch of at most `size`
/// samples is plain batch normalization, to the bit. Eval, frozen, NoStateUpdate and the other
/// rules are BatchNorm's.
class GhostBatchNorm : public Layer {
 public:
  struct Options {
    std::int64_t features = 0;             ///< extent of x's last axis
    std::int64_t size = 32;                ///< samples per virtual batch, >= 1
    double eps = 1e-5;                     ///< >= 0, inside the root
    std::optional<double> momentum = 0.1;  ///< weight of a NEW virtual batch; nullopt: average
    bool affine = true;                    ///< false: neither weight nor bias
    bool bias = true;                      ///< false: a weight alone
    bool track_running_stats = true;       ///< false: no running statistics
    bool check_finite = true;              ///< refuse an update that would spoil a buffer
  };
  /// Throws Error for features < 1, size < 1, a bad eps and a momentum outside [0, 1].
  explicit GhostBatchNorm(const Options& options);

  /// x: [N, ..., features] of rank >= 2. Errors as BatchNorm::forward; nothing is updated by a
  /// batch of which one virtual batch is not finite.
  Tensor forward(const Tensor& x) override;
  /// rstd_min, rstd_max over channels and virtual batches (in eval of the running statistics), and
  /// normalized_mean, _std, _skewness, _kurtosis.
  void measure(const Tensor& x, const MeasureSink& sink) const override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::string statistics() const override;

  const Options o;
  Tensor& weight;               ///< [features], Role::NormScale; undefined without affine
  Tensor& bias;                 ///< [features], Role::NormShift; undefined without affine or bias
  Tensor& running_mean;         ///< [features], zeros at first; undefined without tracking
  Tensor& running_var;          ///< [features], ones at first
  Tensor& num_batches_tracked;  ///< i64 scalar: virtual batches that updated
};

}  // namespace steady
