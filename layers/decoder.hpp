#pragma once

#include <cstdint>
#include <steadygrad/core/ops/rotary.hpp>
#include <steadygrad/core/parameter.hpp>
#include <steadygrad/layers/embedding.hpp>
#include <steadygrad/layers/transformer_block.hpp>
#include <string>
#include <vector>

namespace steady {

/// How a decoder knows where a token stands: a learned vector per position, a rotation of queries
/// and keys [RoFormer, Su et al. 2021], or not at all.
enum class Positions : std::uint8_t { Learned, Rotary, None };

/// What a Decoder reads besides the ids.
struct DecoderInputs {
  Tensor mask = {};                ///< [B, T], i32 or i64, non-zero: a token; all by default
  KeyValueCache* cache = nullptr;  ///< the ids continue the tokens held there
  State* hidden = nullptr;         ///< gets "embed", "layer_0", ..., "final_norm": [B, T, dim] each
};

/// A decoder-only Transformer: ids, i64 [B, T] -> logits [B, T, vocab].
///   h = tokens[id] (+ positions[t]); blocks; final norm where the placement has one;
///   logits = h W^T, W the token table itself when tied
/// GPT-2 style with gpt2(), the Llama family with llama(), and everything between by options. The
/// names in state() are the family's. Initial weights: normal of deviation init_std, those that
/// write into the residual stream divided by sqrt(2 layers) when scale_residual_init is set
/// [Radford et al. 2019]; a placement with a gain (deepnorm's beta) has that instead. Biases 0;
/// init_std = 0 leaves every part its own default, without either. Throws Error for options that do
/// not fit together; in a call for more tokens than `context`, ids that are no rows of the table,
/// and what the parts throw.
class Decoder : public Layer {
 public:
  struct Options {
    std::int64_t vocab = 0;
    std::int64_t context = 0;  ///< most tokens of a sequence
    std::int64_t dim = 0;
    std::int64_t layers = 1;
    std::int64_t heads = 1;
    std::int64_t kv_heads = 0;  ///< 0: heads
    std::int64_t head_dim = 0;  ///< 0: dim / heads
    std::int64_t hidden = 0;    ///< of the Mlp; 0: its default
    NormSpec norm = NormSpec::parse("layer");
    Placement placement = {};
    Gate gate = {};
    NormSpec qk_norm = {};  ///< of queries and keys
    bool qk_norm_per_head = true;
    bool embed_norm = false;  ///< `norm` of the embedding
    bool normformer = false;  ///< head scales, norms after attention and inside the Mlp
    Positions positions = Positions::Learned;
    double rope_theta = 10000.0;
    RotaryStyle rope_style = RotaryStyle::HalfSplit;
    MlpKind mlp = MlpKind::GeluTanh;
    bool bias = true;        ///< of every linear map but the head
    bool tied = true;        ///< the head is the token table
    bool head_bias = false;  ///< of a head of its own
    double dropout = 0.0;
    double init_std = 0.02;
    bool scale_residual_init = true;
    Family family = Family::Gpt2;
    bool recompute = false;  ///< keep the blocks' inputs alone for backward (see recompute())
  };

  /// Sizes that every decoder has.
  struct Sizes {
    std::int64_t vocab, context, dim, layers, heads;
  };
  /// Pre-norm LayerNorm, learned positions, gelu in its tanh form, biases, tied.
  [[nodiscard]] static Options gpt2(const Sizes& sizes);
  /// Pre-norm RMSNorm, rotary positions, SwiGlu, no biases, untied.
  [[nodiscard]] static Options llama(const Sizes& sizes);
  /// llama with norms of queries and keys, theta 1e6, tied. For weights of a file set `hidden` to
  /// its intermediate_size: MiniMind's rule for it has changed between versions.
  [[nodiscard]] static Options minimind(const Sizes& sizes, std::int64_t kv_heads);

  explicit Decoder(Options options);

  using Layer::operator();
  Tensor operator()(const Tensor& ids, const DecoderInputs& inputs);
  Tensor forward(const Tensor& ids) override { return decode(ids, {}); }
  /// Mean cross entropy of predicting targets[b, t], i64 [B, T], from ids[b, 0 .. t]; targets of
  /// -100 count nowhere.
  Tensor loss(const Tensor& ids, const Tensor& targets);
  /// An empty cache of the right size.
  [[nodiscard]] KeyValueCache make_cache() const { return {o.layers, o.context}; }
  [[nodiscard]] std::string describe() const override;

  const Options o;

 private:
  [[nodiscard]] Tensor decode(const Tensor& ids, const DecoderInputs& inputs);
  [[nodiscard]] Tensor embed(const Tensor& ids, std::int64_t first);

  Module& stack_;
  Embedding& tokens_;
  Embedding* positions_ = nullptr;
  Layer* embed_norm_ = nullptr;
  Dropout* dropout_ = nullptr;
  Module& layers_;
  std::vector<TransformerBlock*> blocks_;
  Layer* final_norm_ = nullptr;
  Linear* head_ = nullptr;
};

/// The targets of next-token prediction from labels that stand at the tokens themselves, i64
/// [B, T]: targets[b, t] = labels[b, t + 1], and -100 at the end.
[[nodiscard]] Tensor next_token_targets(const Tensor& labels);

}  // namespace steady
