#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace steady::bench {

/// A model, an optimizer and one batch.
class Trainer {
 public:
  virtual ~Trainer() = default;
  Trainer() = default;
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// One forward, backward and update; returns the loss.
  virtual double step() = 0;
};

/// Sizes of a decoder configuration. `llama` chooses RMSNorm, rotary positions, grouped-query heads
/// and SwiGLU without biases; otherwise LayerNorm, learned positions, GELU and biases. The head is
/// tied to the embedding; AdamW at 1e-3 with a decay of 0.01.
struct DecoderSizes {
  bool llama = false;
  std::int64_t layers = 4;
  std::int64_t dim = 128;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 4;
  std::int64_t hidden = 512;
  std::int64_t context = 128;
  std::int64_t vocabulary = 65;
  std::int64_t batch = 16;
};

/// Configuration (a): 28x28x1, conv3x3 1-32, BN, ReLU, conv3x3 32-64, BN, ReLU, max pool 2,
/// conv3x3 64-64, BN, ReLU, global average pool, linear 10; SGD with momentum 0.9; one batch.
/// images: [n, 28, 28], labels: [n].
[[nodiscard]] std::unique_ptr<Trainer> make_torch_cnn(std::span<const float> images,
                                                      std::span<const std::int64_t> labels,
                                                      int threads);

/// Configurations (c), (d) and (e). ids, targets: [batch, context].
[[nodiscard]] std::unique_ptr<Trainer> make_torch_decoder(const DecoderSizes& sizes,
                                                          std::span<const std::int64_t> ids,
                                                          std::span<const std::int64_t> targets,
                                                          int threads);

}  // namespace steady::bench
