#include "examples/inspect/norm_finding.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

namespace steady::examples::inspect {
namespace {

using Members = std::map<std::string, const TensorEntry*>;

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  return result;
}

/// "ln", "ln_1", "ln2", "pre_ln", but not "lndex".
bool has_token(const std::string& name, const std::string& token) {
  const auto letter = [&](std::size_t i) {
    return i < name.size() && std::isalpha(static_cast<unsigned char>(name[i])) != 0;
  };
  for (std::size_t at = name.find(token); at != name.npos; at = name.find(token, at + 1)) {
    if ((at == 0 || !letter(at - 1)) && !letter(at + token.size())) return true;
  }
  return false;
}

/// The member under the first of these names that is there.
const TensorEntry* member(const Members& members, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto at = members.find(name); at != members.end()) return at->second;
  }
  return nullptr;
}

bool is_vector(const TensorEntry* t) { return t != nullptr && t->dims.size() == 1; }

/// The parameters of a module as those of a norm; `named` says whether its name is one.
NormFinding roles(const std::string& path, const Members& members, bool named) {
  NormFinding norm{.path = path, .named = named};
  norm.gain =
      named ? member(members, {"weight", "scale", "gamma", "g"}) : member(members, {"weight"});
  norm.shift =
      named ? member(members, {"bias", "shift", "beta", "offset"}) : member(members, {"bias"});
  norm.alpha = member(members, {"alpha"});
  norm.running_mean = member(members, {"running_mean"});
  norm.running_var = member(members, {"running_var"});
  norm.batches = member(members, {"num_batches_tracked"});
  for (const auto& [name, tensor] : members) norm.present.push_back(name);
  const TensorEntry* widest = norm.gain != nullptr    ? norm.gain
                              : norm.shift != nullptr ? norm.shift
                                                      : norm.running_var;
  if (widest != nullptr && !widest->dims.empty()) norm.width = widest->dims.back();
  return norm;
}

/// Weight and spectral normalization keep the weight of a layer in parts.
Kind split_weight(const Members& members) {
  if (members.contains("weight_g") && members.contains("weight_v")) return Kind::WeightNorm;
  return members.contains("weight_orig") && members.contains("weight_u") ? Kind::SpectralNorm
                                                                         : Kind::Unknown;
}

bool is_norm(const NormFinding& n) {
  if (n.has_running_stats()) return true;
  const bool gain = is_vector(n.gain);
  if (n.alpha != nullptr && n.alpha->numel() == 1 && gain) return true;
  // A norm over several axes, or with gains for every head; a linear map has another bias.
  const bool alike = n.shift == nullptr || (n.gain != nullptr && n.shift->dims == n.gain->dims);
  if (n.named && n.gain != nullptr && !n.gain->dims.empty() && n.gain->dims.size() <= 3 && alike) {
    return true;
  }
  if (n.named && is_vector(n.shift) && n.gain == nullptr) return true;
  if (n.named && gain) return true;  // widths that differ are a matter of health
  return gain && is_vector(n.shift) && n.gain->dims == n.shift->dims;
}

}  // namespace

std::string_view to_string(Certainty certainty) {
  constexpr std::array<std::string_view, 3> Names{"undecidable", "likely", "certain"};
  return Names[static_cast<std::size_t>(certainty)];
}

std::string_view last_part(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == path.npos ? path : path.substr(dot + 1);
}

bool is_norm_name(std::string_view path) {
  const std::string name = lower(last_part(path));
  if (name.find("norm") != name.npos) return true;
  return std::ranges::any_of(std::array{"ln", "bn", "gn"},
                             [&](const char* token) { return has_token(name, token); });
}

bool is_query_or_key_norm(std::string_view path) {
  const std::string name = lower(last_part(path));
  static constexpr std::array Names{"q_norm",     "k_norm",   "q_layernorm",     "k_layernorm",
                                    "query_norm", "key_norm", "norm_q",          "norm_k",
                                    "q_ln",       "k_ln",     "query_layernorm", "key_layernorm"};
  return std::ranges::find(Names, name) != Names.end();
}

std::vector<NormFinding> find_norms(const TensorList& list) {
  std::map<std::string, Members> modules;
  for (const TensorEntry& t : list.tensors) {
    const std::string_view leaf = last_part(t.name);
    const std::size_t length = t.name.size() - leaf.size();
    modules[t.name.substr(0, length == 0 ? 0 : length - 1)][std::string(leaf)] = &t;
  }
  std::vector<NormFinding> result;
  for (const auto& [path, members] : modules) {
    NormFinding norm = roles(path, members, is_norm_name(path));
    norm.kind = split_weight(members);
    if (norm.kind != Kind::Unknown || is_norm(norm)) result.push_back(std::move(norm));
  }
  return result;
}

}  // namespace steady::examples::inspect
