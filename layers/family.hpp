#pragma once

#include <cstdint>
#include <steadygrad/layers/attention.hpp>
#include <steadygrad/layers/mlp.hpp>
#include <steadygrad/layers/residual.hpp>
#include <string>
#include <string_view>

namespace steady {

/// Whose names the parts of a Transformer have in state().
///   Gpt2   transformer.h.0.ln_1.weight, attn.c_attn (q, k, v as one), mlp.c_fc
///   Llama  model.layers.0.input_layernorm.weight, self_attn.q_proj, mlp.gate_proj; also those of
///          OLMo 2 and Gemma 2 for norms behind a branch
///   Plain  decoder.layers.0.norm1.weight, self_attn.q_proj, cross_attn.q_proj, ffn.fc1
enum class Family : std::uint8_t { Plain, Gpt2, Llama };

/// "plain", "gpt2", "llama".
[[nodiscard]] std::string_view to_string(Family family);

/// The names that a family gives to the parts of a decoder.
struct FamilyNames {
  std::string stack;   ///< what holds everything but an untied head
  std::string layers;  ///< in the stack
  std::string tokens;  ///< embeddings, in the stack
  std::string positions;
  std::string embed_norm;
  std::string final_norm;
  std::string head;  ///< beside the stack
  std::string self_attention;
  std::string cross_attention;
  std::string mlp;
  bool fused;  ///< q, k and v are one linear map
  AttentionNames attention;
  MlpNames feed_forward;
};
[[nodiscard]] const FamilyNames& family_names(Family family);

/// The names of the norms and the gate of one branch.
struct ResidualNames {
  std::string before;
  std::string after;
  std::string gate;
};
[[nodiscard]] ResidualNames residual_names(Family family, const ResidualNorms& norms,
                                           const ResidualSite& site);

}  // namespace steady
