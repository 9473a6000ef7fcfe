#pragma once

#include <cstdint>
#include <optional>
#include <steadygrad/core/ops/attention.hpp>
#include <steadygrad/core/ops/rotary.hpp>
#include <steadygrad/layers/attention_measure.hpp>
#include <steadygrad/layers/dropout.hpp>
#include <steadygrad/layers/key_value_cache.hpp>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <string>

namespace steady {

/// What the linear maps and norms of an Attention layer are called in state().
struct AttentionNames {
  std::string query = "q_proj";
  std::string key = "k_proj";
  std::string value = "v_proj";
  std::string output = "o_proj";
  std::string fused = "qkv_proj";  ///< the three as one, with Options::fused
};

/// What an Attention layer reads besides its input.
struct AttentionInputs {
  Tensor mask = {};    ///< [B, Tk], i32 or i64, non-zero: may be attended; all by default
  Tensor memory = {};  ///< [B, Tk, dim]: keys and values are of it; by default of x
  KeyValueCache* cache = nullptr;  ///< x continues the tokens held there
  std::int64_t cache_layer = 0;    ///< which layer of the cache is this one's
};

/// Multi-head attention                               [Vaswani et al. 2017, section 3.2.2]
///   q = x Wq^T, k = x Wk^T, v = x Wv^T, cut into heads; norms and rotation of q and k;
///   y = concat(softmax(scale q k^T) v) Wo^T
/// x, y: [B, T, dim]. Query head h reads key head h / (heads / kv_heads)  [grouped queries: Ainslie
/// et al. 2023]. Norms of q, k and v act on the head_dim features of each head, unless asked
/// otherwise, and before the rotation. Weights are [out, in]; fused: the rows of q, then k, then v.
/// Dropout acts in train mode: on the attention weights and on y. Throws Error for options that do
/// not fit together, ShapeError for x that does not fit.
class Attention : public Layer {
 public:
  struct Options {
    std::int64_t dim = 0;
    std::int64_t heads = 1;
    std::int64_t kv_heads = 0;  ///< divides heads; 0: heads
    std::int64_t head_dim = 0;  ///< 0: dim / heads
    bool fused = false;         ///< one linear map for q, k and v; not for a `memory`
    bool qkv_bias = true;
    bool out_bias = true;
    bool causal = true;                     ///< a token attends itself and what is before it
    double scale = 0.0;                     ///< of the scores; 0: 1 / sqrt(head_dim)
    NormSpec qk_norm{};                     ///< of q and k, as children "q_norm" and "k_norm"
    bool qk_norm_per_head = true;           ///< false: over all heads at once (OLMo 2)
    NormSpec v_norm{};                      ///< of v, as child "v_norm" (HybridNorm)
    NormSpec out_norm{};                    ///< of y, as child "norm" (NormFormer)
    std::optional<RotaryOptions> rotary{};  ///< its offset is that of the cache
    bool head_scale = false;                ///< a learned factor per head (NormFormer)
    double dropout = 0.0;                   ///< probability of zero
    Init weight_init = {};                  ///< of q and k; empty: that of Linear
    Init value_init = {};                   ///< of v; empty: weight_init, which it needs when fused
    Init out_init = {};                     ///< of the output; empty: that of Linear
    Init bias_init = {};
    AttentionNames names = {};
  };
  explicit Attention(Options options);

  /// A probe gets logit_max and entropy_mean of these calls: detail::measure_attention.
  Tensor operator()(const Tensor& x, const AttentionInputs& inputs = {});
  Tensor forward(const Tensor& x) override { return attend(x, {}, nullptr); }
  [[nodiscard]] std::string describe() const override;

  const Options o;
  Tensor& head_scale;  ///< [heads], Role::NormScale; undefined without Options::head_scale

 private:
  struct Heads {
    Tensor q, k, v;  ///< [B, T, heads or kv_heads, head_dim]
  };
  /// Notes in `scores`, unless null, what the scores are made of.
  [[nodiscard]] Tensor attend(const Tensor& x, const AttentionInputs& inputs,
                              detail::AttentionScores* scores);
  [[nodiscard]] Heads project(const Tensor& x, const Tensor& memory);
  void check(const Tensor& x, const AttentionInputs& inputs) const;
  Layer* norm(const char* name, const NormSpec& spec, std::int64_t features);
  Linear& linear(const std::string& name, std::int64_t out, const Init& init);

  Linear* fused_ = nullptr;
  Linear* query_ = nullptr;
  Linear* key_ = nullptr;
  Linear* value_ = nullptr;
  Layer* query_norm_ = nullptr;
  Layer* key_norm_ = nullptr;
  Layer* value_norm_ = nullptr;
  Linear& output_;
  Layer* output_norm_ = nullptr;
  Dropout* weight_dropout_ = nullptr;
  Dropout* output_dropout_ = nullptr;
};

}  // namespace steady
