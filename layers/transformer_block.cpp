#include <steadygrad/layers/transformer_block.hpp>

#include <array>
#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/recompute.hpp>

namespace steady {
namespace {

TransformerBlock::Options checked(TransformerBlock::Options o) {
  STEADY_CHECK(Error, o.attention.dim == o.mlp.dim,
               "TransformerBlock: attention and mlp must have one dim; got {} and {}",
               o.attention.dim, o.mlp.dim);
  const FamilyNames& names = family_names(o.family);
  o.attention.names = names.attention;
  o.mlp.names = names.feed_forward;
  if (o.placement.qkv_norm()) {
    if (o.attention.qk_norm == NormSpec()) o.attention.qk_norm = o.norm;
    if (o.attention.v_norm == NormSpec()) o.attention.v_norm = o.norm;
  }
  return o;
}

Attention::Options cross(Attention::Options o) {
  o.causal = false;
  o.fused = false;
  o.rotary.reset();
  return o;
}

}  // namespace

Residual TransformerBlock::residual(int branch, bool feed_forward) {
  const ResidualSite site{.layer = o.layer,
                          .layers = o.layers,
                          .branch = branch,
                          .branches = o.cross_attention ? 3 : 2,
                          .feed_forward = feed_forward};
  const ResidualNames names = residual_names(o.family, residual_norms(o.placement, site), site);
  return Residual(*this, {.placement = o.placement,
                          .norm = o.norm,
                          .gate = o.gate,
                          .features = o.mlp.dim,
                          .site = site,
                          .before_name = names.before,
                          .after_name = names.after,
                          .gate_name = names.gate});
}

TransformerBlock::TransformerBlock(Options options)
    : o(checked(std::move(options))),
      around_self_(residual(0, false)),
      self_(add<Attention>(family_names(o.family).self_attention, o.attention)),
      around_cross_(o.cross_attention ? std::optional(residual(1, false)) : std::nullopt),
      cross_(o.cross_attention
                 ? &add<Attention>(family_names(o.family).cross_attention, cross(o.attention))
                 : nullptr),
      around_mlp_(residual(o.cross_attention ? 2 : 1, true)),
      mlp_(add<Mlp>(family_names(o.family).mlp, o.mlp)) {}

ResidualStream TransformerBlock::advance(const ResidualStream& stream, const BlockInputs& inputs) {
  STEADY_CHECK(Error, inputs.memory.defined() == o.cross_attention,
               "TransformerBlock: a memory and cross_attention = true need each other");
  ResidualStream s =
      around_self_.advance(stream, [&](const Tensor& x) { return self_(x, inputs.self); });
  if (cross_ != nullptr) {
    s = around_cross_->advance(s, [&](const Tensor& x) {
      return (*cross_)(x, {.mask = inputs.memory_mask, .memory = inputs.memory});
    });
  }
  return around_mlp_.advance(s, [&](const Tensor& x) { return mlp_(x); });
}

Tensor TransformerBlock::operator()(const Tensor& x, const BlockInputs& inputs) {
  return (*this)(ResidualStream{x}, inputs).x;
}

ResidualStream TransformerBlock::operator()(const ResidualStream& stream,
                                            const BlockInputs& inputs) {
  return settled(step(stream, inputs));
}

ResidualStream TransformerBlock::step(const ResidualStream& stream, const BlockInputs& inputs) {
  const ResidualStream from = observed() ? settled(stream) : stream;
  ResidualStream result;
  (void)run(from.x, [&](const Tensor& x) {
    result = advance({x, from.side, from.added}, inputs);
    if (observed()) result = settled(result);
    return result.x;
  });
  return result;
}

ResidualStream TransformerBlock::recomputed(const ResidualStream& stream,
                                            const BlockInputs& inputs) {
  STEADY_CHECK(Error, inputs.self.cache == nullptr,
               "TransformerBlock: what a cache holds is not recomputed");
  const ResidualStream from = settled(stream);
  const std::array given{from.x,        from.side,         inputs.self.mask, inputs.self.memory,
                         inputs.memory, inputs.memory_mask};
  const std::vector<Tensor> made =
      recompute(*this, given, [](Layer& block, std::span<const Tensor> in) {
        const ResidualStream y = static_cast<TransformerBlock&>(block)(
            ResidualStream{in[0], in[1]},
            {.self = {.mask = in[2], .memory = in[3]}, .memory = in[4], .memory_mask = in[5]});
        return std::vector<Tensor>{y.x, y.side};
      });
  return {made[0], made[1]};
}

std::string TransformerBlock::describe() const {
  return fmt::format("TransformerBlock({}, {}, {}{}{})", o.mlp.dim, to_string(o.placement),
                     to_string(o.norm),
                     o.gate == Gate() ? "" : ", gate=", o.gate == Gate() ? "" : to_string(o.gate));
}

}  // namespace steady
