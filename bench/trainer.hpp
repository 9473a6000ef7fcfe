#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

// The training configurations, each once with this library and once with its peer. Both sides get
// the same model, optimizer and batch.

namespace steady {
class Gradients;
class Module;
class Tape;
class Tensor;
}  // namespace steady

namespace steady::bench {

/// A model, an optimizer and one batch.
class Trainer {
 public:
  /// The gradients of a loss, in place of tape.backward(loss).
  using Backward = std::function<Gradients(Tape& tape, const Tensor& loss)>;

  virtual ~Trainer() = default;
  Trainer() = default;
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// One forward, backward and update; returns the loss.
  virtual double step() = 0;
  /// Bytes that a forward leaves alive for its backward; 0 where it cannot be known.
  [[nodiscard]] virtual std::int64_t activation_bytes() { return 0; }

  /// Ours only: the model, and how its gradients are found from now on.
  virtual Module* model() { return nullptr; }
  void set_backward(Backward backward) { backward_ = std::move(backward); }

 protected:
  Backward backward_{};
};

/// One batch of images [n, height, width, channels] and their classes, 0 to 9.
struct ImageBatch {
  std::int64_t count = 64;
  std::int64_t size = 28;  ///< height and width
  std::int64_t channels = 1;
  std::span<const float> images{};
  std::span<const std::int64_t> labels{};
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
  bool recompute = false;  ///< ours only: keep the inputs of blocks and run them again in backward
};

/// One batch of tokens, each [batch, context].
struct TokenBatch {
  std::span<const std::int64_t> ids{};
  std::span<const std::int64_t> targets{};
};

/// Configuration (a): 28x28x1, conv3x3 1-32, BN, ReLU, conv3x3 32-64, BN, ReLU, max pool 2,
/// conv3x3 64-64, BN, ReLU, global average pool, linear 10; SGD with momentum 0.9.
[[nodiscard]] std::unique_ptr<Trainer> make_cnn(const ImageBatch& batch);
[[nodiscard]] std::unique_ptr<Trainer> make_torch_cnn(const ImageBatch& batch, int threads);

/// Configuration (b): ResNet-20 for 32x32x3 [He et al. 2016]: three stages of three blocks with 16,
/// 32 and 64 channels, BN, 1x1 convolutions with BN where the shape changes; SGD, momentum 0.9.
[[nodiscard]] std::unique_ptr<Trainer> make_resnet(const ImageBatch& batch);
[[nodiscard]] std::unique_ptr<Trainer> make_torch_resnet(const ImageBatch& batch, int threads);

/// Configurations (c), (d) and (e).
[[nodiscard]] std::unique_ptr<Trainer> make_decoder(const DecoderSizes& sizes,
                                                    const TokenBatch& batch);
[[nodiscard]] std::unique_ptr<Trainer> make_torch_decoder(const DecoderSizes& sizes,
                                                          const TokenBatch& batch, int threads);

/// n times x = x * c or x + c, c a constant, on a leaf of 4 elements, and its backward.
[[nodiscard]] std::function<void()> torch_chain(int n);
/// A training step of an MLP 16-32-16 with tanh on 8 rows, mean squared error, SGD with momentum or
/// AdamW.
[[nodiscard]] std::unique_ptr<Trainer> make_torch_mlp(bool adamw);

}  // namespace steady::bench
