#pragma once

#include <optional>
#include <span>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/norm/column_stats.hpp>

namespace steady::detail {

/// The buffers in which a layer keeps running statistics.
struct RunningBuffers {
  Tensor& mean;   ///< [features]
  Tensor& var;    ///< [features]; undefined where only the mean is kept
  Tensor& count;  ///< i64 scalar: batches so far
};

/// One update of running statistics by one batch or several in order, computed beside the buffers:
/// whatever throws before commit() leaves all of them as they were.
class RunningUpdate {
 public:
  struct Options {
    const char* layer;               ///< named in errors
    std::optional<double> momentum;  ///< weight of the new batch; nullopt: 1 / batches so far
    bool check_finite = true;        ///< refuse what would put NaN or infinity into a buffer
  };
  RunningUpdate(const RunningBuffers& buffers, const Options& options);

  /// running = (1 - momentum) * running + momentum * batch, with the batch's mean and UNBIASED
  /// variance; count + 1. Throws NonFiniteError naming layer, channel and step.
  void add(std::span<const Moments> batch);
  void commit();

 private:
  RunningBuffers buffers_;
  Options o_;
  Tensor mean_, var_;
  std::int64_t count_;
};

}  // namespace steady::detail
