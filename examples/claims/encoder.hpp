#pragma once

#include <cstdint>
#include <steadygrad/layers/transformer_block.hpp>
#include <vector>

namespace steady::examples::claims {

/// A stack of Transformer blocks without biases between two norms of its placement: Xavier normal
/// weights times `gain`, and times the placement's own gain where that acts (deepnorm).
class Encoder : public Layer {
 public:
  struct Options {
    std::int64_t dim = 64;
    std::int64_t hidden = 64;  ///< of the feed-forward part, relu
    std::int64_t heads = 4;
    std::int64_t layers = 1;
    bool causal = false;
    Placement placement = {};
    NormSpec norm = NormSpec::parse("layer");
    Gate gate = {};
    NormSpec qk_norm = {};
    double gain = 1;
    bool final_norm = true;  ///< where the placement has one
  };
  explicit Encoder(const Options& options);

  /// x, y: [B, T, dim].
  Tensor forward(const Tensor& x) override;
  /// x and what left each block in the last forward, when asked for.
  bool keep_stream = false;
  std::vector<Tensor> stream = {};

  const Options o;

 private:
  std::vector<TransformerBlock*> blocks_;
  Layer* final_norm_ = nullptr;
};

/// What the attention of one block did.
struct AttentionScores {
  double logit_max = 0;  ///< the largest scaled logit
  double entropy = 0;    ///< mean over the queries, in nats
};
/// Of each Attention in `model` during a forward of x, in the order of the calls. `model` may not
/// be in eval mode.
[[nodiscard]] std::vector<AttentionScores> attention_scores(Layer& model, const Tensor& x);

}  // namespace steady::examples::claims
