#pragma once

#include <cstdint>
#include <optional>
#include <steadygrad/layers/attention.hpp>
#include <steadygrad/layers/family.hpp>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/mlp.hpp>
#include <steadygrad/layers/residual.hpp>
#include <string>

namespace steady {

/// What a block reads besides its input.
struct BlockInputs {
  AttentionInputs self = {};
  Tensor memory = {};       ///< [B, S, dim], for the cross attention
  Tensor memory_mask = {};  ///< [B, S], non-zero: may be attended
};

/// One layer of a Transformer: self attention, cross attention when asked for, feed-forward, each a
/// residual branch with the norms of its placement. x, y: [B, T, dim]. Initial weights are those of
/// the options: a placement's initial_gain (deepnorm) is applied by Decoder, not here.
class TransformerBlock : public Layer {
 public:
  struct Options {
    Attention::Options attention = {};  ///< its names are the family's
    Mlp::Options mlp = {};              ///< its names are the family's
    bool cross_attention = false;       ///< with the options of the self attention, not causal
    NormSpec norm = {};
    Placement placement = {};
    Gate gate = {};
    Family family = Family::Plain;
    std::int64_t layer = 1;  ///< from 1
    std::int64_t layers = 1;
  };
  /// Throws Error when attention and mlp have different dims, and what the parts throw.
  explicit TransformerBlock(Options options);

  using Layer::operator();
  Tensor operator()(const Tensor& x, const BlockInputs& inputs);
  ResidualStream operator()(const ResidualStream& stream, const BlockInputs& inputs);
  /// The same inside a stack of blocks: what the last branch adds may stand apart, for the norm
  /// that comes next.
  ResidualStream step(const ResidualStream& stream, const BlockInputs& inputs);
  /// The same, of which backward keeps what flows in alone (see recompute()). Not with a cache.
  ResidualStream recomputed(const ResidualStream& stream, const BlockInputs& inputs);
  /// Throws Error for a block with cross attention: it needs a memory.
  Tensor forward(const Tensor& x) override { return settled(advance({x}, {})).x; }
  [[nodiscard]] std::string describe() const override;

  const Options o;

 private:
  [[nodiscard]] ResidualStream advance(const ResidualStream& stream, const BlockInputs& inputs);
  [[nodiscard]] Residual residual(int branch, bool feed_forward);

  Residual around_self_;
  Attention& self_;
  std::optional<Residual> around_cross_;
  Attention* cross_ = nullptr;
  Residual around_mlp_;
  Mlp& mlp_;
};

}  // namespace steady
