#include <steadygrad/layers/family.hpp>

#include <steadygrad/core/error.hpp>

namespace steady {

std::string_view to_string(Family family) {
  switch (family) {
    case Family::Plain:
      return "plain";
    case Family::Gpt2:
      return "gpt2";
    case Family::Llama:
      return "llama";
  }
  return "?";
}

const FamilyNames& family_names(Family family) {
  static const FamilyNames plain{.stack = "decoder",
                                 .layers = "layers",
                                 .tokens = "tokens",
                                 .positions = "positions",
                                 .embed_norm = "embed_norm",
                                 .final_norm = "norm",
                                 .head = "head",
                                 .self_attention = "self_attn",
                                 .cross_attention = "cross_attn",
                                 .mlp = "ffn",
                                 .fused = false,
                                 .attention = {},
                                 .feed_forward = {}};
  static const FamilyNames gpt2{.stack = "transformer",
                                .layers = "h",
                                .tokens = "wte",
                                .positions = "wpe",
                                .embed_norm = "ln_e",
                                .final_norm = "ln_f",
                                .head = "lm_head",
                                .self_attention = "attn",
                                .cross_attention = "crossattention",
                                .mlp = "mlp",
                                .fused = true,
                                .attention = {.output = "c_proj", .fused = "c_attn"},
                                .feed_forward = {.up = "c_fc", .down = "c_proj", .gate = "c_gate"}};
  static const FamilyNames llama{
      .stack = "model",
      .layers = "layers",
      .tokens = "embed_tokens",
      .positions = "embed_positions",
      .embed_norm = "embed_norm",
      .final_norm = "norm",
      .head = "lm_head",
      .self_attention = "self_attn",
      .cross_attention = "cross_attn",
      .mlp = "mlp",
      .fused = false,
      .attention = {},
      .feed_forward = {.up = "up_proj", .down = "down_proj", .gate = "gate_proj"}};
  switch (family) {
    case Family::Plain:
      return plain;
    case Family::Gpt2:
      return gpt2;
    case Family::Llama:
      return llama;
  }
  throw Error("family_names: unknown family");
}

ResidualNames residual_names(Family family, const ResidualNorms& norms, const ResidualSite& site) {
  const bool both = norms.before && norms.after;
  const bool cross = !site.feed_forward && site.branch > 0;
  const std::string gate = fmt::format("gate{}", site.branch + 1);
  if (family == Family::Plain) {
    const std::string norm = fmt::format("norm{}", site.branch + 1);
    return {norm, both ? norm + "_out" : norm, gate};
  }
  if (family == Family::Gpt2) {
    const std::string norm = cross ? "ln_cross_attn" : site.feed_forward ? "ln_2" : "ln_1";
    return {norm, both ? norm + "_out" : norm, gate};
  }
  if (cross) return {"cross_attention_layernorm", "post_cross_attention_layernorm", gate};
  if (!site.feed_forward) return {"input_layernorm", "post_attention_layernorm", gate};
  return {both ? "pre_feedforward_layernorm" : "post_attention_layernorm",
          "post_feedforward_layernorm", gate};
}

}  // namespace steady
