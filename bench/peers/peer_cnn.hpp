#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace steady::bench {

/// Configuration (a): 28x28x1, conv3x3 1-32, BN, ReLU, conv3x3 32-64, BN, ReLU, max pool 2,
/// conv3x3 64-64, BN, ReLU, global average pool, linear 10; SGD with momentum 0.9; one batch.
class CnnTrainer {
 public:
  virtual ~CnnTrainer() = default;
  CnnTrainer() = default;
  CnnTrainer(const CnnTrainer&) = delete;
  CnnTrainer& operator=(const CnnTrainer&) = delete;

  /// One forward, backward and update; returns the loss.
  virtual double step() = 0;
};

/// The same model in libtorch, with its default settings. images: [n, 28, 28], labels: [n].
[[nodiscard]] std::unique_ptr<CnnTrainer> make_torch_cnn(std::span<const float> images,
                                                         std::span<const std::int64_t> labels,
                                                         int threads);

}  // namespace steady::bench
