#include "examples/claims/encoder.hpp"

#include <steadygrad/layers/probe.hpp>
#include <string>

namespace steady::examples::claims {

Encoder::Encoder(const Options& options) : o(options) {
  const Init weight = xavier_normal_init(o.gain);
  const Init scaled = xavier_normal_init(o.gain * o.placement.initial_gain(o.layers));
  for (std::int64_t l = 1; l <= o.layers; ++l) {
    blocks_.push_back(
        &add<TransformerBlock>(std::to_string(l - 1), {.attention = {.dim = o.dim,
                                                                     .heads = o.heads,
                                                                     .qkv_bias = false,
                                                                     .out_bias = false,
                                                                     .causal = o.causal,
                                                                     .qk_norm = o.qk_norm,
                                                                     .weight_init = weight,
                                                                     .value_init = scaled,
                                                                     .out_init = scaled},
                                                       .mlp = {.dim = o.dim,
                                                               .hidden = o.hidden,
                                                               .kind = MlpKind::Relu,
                                                               .bias = false,
                                                               .weight_init = scaled,
                                                               .down_init = scaled},
                                                       .norm = o.norm,
                                                       .placement = o.placement,
                                                       .gate = o.gate,
                                                       .layer = l,
                                                       .layers = o.layers}));
  }
  if (o.final_norm && o.placement.final_norm()) final_norm_ = &add_norm("norm", o.norm, o.dim);
}

Tensor Encoder::forward(const Tensor& x) {
  stream.clear();
  ResidualStream s{x};
  const auto keep = [&] {
    if (keep_stream) stream.push_back(s.x);
  };
  keep();
  for (TransformerBlock* block : blocks_) {
    s = (*block)(s, BlockInputs{});
    keep();
  }
  return finish(o.placement, s, final_norm_);
}

std::vector<AttentionScores> attention_scores(Layer& model, const Tensor& x) {
  std::vector<AttentionScores> scores;
  Probe probe(model, {.paths = "*self_attn", .every = 1, .evaluation = true});
  (void)model(x);
  probe.finish();
  for (const ProbeMeasure& m : probe.steps().front().measures) {
    if (m.name == "logit_max") scores.push_back({.logit_max = m.value});
    if (m.name == "entropy_mean") scores.back().entropy = m.value;
  }
  return scores;
}

}  // namespace steady::examples::claims
