#include "examples/inspect/placement.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>
#include <string>

namespace steady::examples::inspect {
namespace {

constexpr const char* BeforeAttention = "before attention";
constexpr const char* BeforeMlp = "before the feed-forward part";
constexpr const char* BeforeBoth = "before attention and the feed-forward part, in parallel";
constexpr const char* OnOutput = "on the sub-layer output, before the residual add";
constexpr const char* AfterAdd = "after the residual add";

/// The path up to the number of its block, and what follows it; no block: everything follows.
struct Position {
  std::string block;
  std::string rest;
};

Position position_of(const std::string& path) {
  std::size_t begin = 0;
  Position result{"", path};
  while (begin < path.size()) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const bool number = std::all_of(path.begin() + static_cast<std::ptrdiff_t>(begin),
                                    path.begin() + static_cast<std::ptrdiff_t>(end),
                                    [](unsigned char c) { return std::isdigit(c) != 0; });
    if (number && end < path.size()) return {path.substr(0, end), path.substr(end + 1)};
    begin = end + 1;
  }
  return result;
}

using Names = std::set<std::string>;

bool one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

/// Norms that belong to no block.
const char* outside(std::string_view name) {
  if (name.find("embed") != name.npos || name == "ln_e") return "on the embedding";
  if (one_of(name, {"norm", "ln_f", "norm_f", "final_layernorm", "final_layer_norm", "final_norm",
                    "layer_norm", "layernorm", "ln_final"})) {
    return "after the last block";
  }
  return "";
}

/// Llama's names, which Gemma 2 and OLMo 2 use for other places.
const char* llama_place(std::string_view name, const Names& all) {
  const bool input = all.contains("input_layernorm");
  const bool sandwich = all.contains("pre_feedforward_layernorm");
  const bool output = !input && all.contains("post_feedforward_layernorm");
  if (name == "input_layernorm") {
    return all.contains("post_attention_layernorm") ? BeforeAttention : BeforeBoth;
  }
  if (name == "pre_feedforward_layernorm") return BeforeMlp;
  if (name == "post_feedforward_layernorm") return OnOutput;
  if (name == "post_attention_layernorm") return sandwich || output ? OnOutput : BeforeMlp;
  return "";
}

/// First and second norm of a block by their numbers.
const char* numbered_place(std::string_view name, const Architecture* family) {
  const bool first = one_of(name, {"ln_1", "ln1", "norm1", "norm_1", "attention_norm", "attn_norm",
                                   "ln_attn", "layernorm_before"});
  const bool second = one_of(name, {"ln_2", "ln2", "norm2", "norm_2", "ffn_norm", "mlp_norm",
                                    "ln_mlp", "layernorm_after"});
  if (!first && !second) return "";
  // nn.TransformerEncoderLayer has these names for pre and post norm alike.
  const bool either = name.starts_with("norm") && family == nullptr;
  if (either) return "";
  return first ? BeforeAttention : BeforeMlp;
}

std::string place_of(const NormFinding& norm, const Position& at, const Names& all) {
  const std::string_view name = last_part(norm.path);
  if (is_query_or_key_norm(norm.path)) {
    return name.find('q') != name.npos ? "on the queries" : "on the keys";
  }
  if (norm.kind == Kind::WeightNorm || norm.kind == Kind::SpectralNorm) return "on the weight";
  if (at.rest.ends_with("output.LayerNorm")) return AfterAdd;
  if (at.rest.find("embeddings.") != std::string::npos) return "on the embedding";
  if (const char* place = llama_place(name, all); *place != '\0') return place;
  if (at.block.empty()) return outside(name);
  return numbered_place(name, norm.family);
}

Placement whole(const std::vector<NormFinding>& norms, const Architecture* family) {
  const auto any = [&](std::string_view place) {
    return std::ranges::any_of(norms, [&](const NormFinding& n) { return n.place == place; });
  };
  const bool before = any(BeforeAttention) || any(BeforeMlp);
  if (any(OnOutput)) return before ? Placement::Sandwich : Placement::Output;
  if (any(AfterAdd)) return Placement::Post;
  if (family != nullptr) return family->placement;
  if (any(BeforeBoth)) return Placement::Parallel;
  return before ? Placement::Pre : Placement::Unknown;
}

}  // namespace

Placement find_places(std::vector<NormFinding>& norms, const Architecture* family) {
  std::map<std::string, Names> blocks;
  for (const NormFinding& norm : norms) {
    const Position at = position_of(norm.path);
    if (!at.block.empty()) blocks[at.block].insert(std::string(last_part(norm.path)));
  }
  for (NormFinding& norm : norms) {
    const Position at = position_of(norm.path);
    norm.place = place_of(norm, at, blocks[at.block]);
  }
  return whole(norms, family);
}

}  // namespace steady::examples::inspect
