#include "examples/inspect/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <set>
#include <steadygrad/layers/weight_layout.hpp>

namespace steady::examples::inspect {
namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  return text;
}

void decide(NormFinding& norm, Kind kind, Certainty certainty, std::string reason) {
  norm.kind = kind;
  norm.certainty = certainty;
  norm.reasons.push_back(std::move(reason));
}

std::string family_reason(const Architecture& family, const Evidence& e) {
  const std::string how = e.family != nullptr
                              ? fmt::format("model_type '{}' is", e.config.model_type())
                              : "the names are those of";
  return fmt::format("{} {}: {}", how, family.name, family.source);
}

// --- scale only: LayerNorm without bias, or RMSNorm ---------------------------------------------

/// What a key of the config says about scale-only norms.
struct Hint {
  Kind kind;
  std::string reason;
};

/// Keys that name the norm outright.
std::optional<Hint> named_norm(const Config& config) {
  for (const char* key : {"norm_type", "normalization_type", "normalization", "norm_class_name",
                          "norm_class", "layer_norm_type", "norm"}) {
    const auto value = config.text(key);
    if (!value) continue;
    const std::string text = lower(*value);
    const std::string reason = fmt::format("the config has {} = '{}'", key, *value);
    if (text.find("rms") != text.npos) return Hint{Kind::RmsNorm, reason};
    if (text.find("layer") != text.npos || text == "ln") return Hint{Kind::LayerNorm, reason};
  }
  for (const char* key : {"use_rms_norm", "use_rmsnorm", "rms_norm", "rmsnorm"}) {
    if (config.has(key)) return Hint{Kind::RmsNorm, fmt::format("the config has {}", key)};
  }
  return std::nullopt;
}

/// Keys whose mere presence points one way; nothing when they point both ways.
std::optional<Hint> key_of_eps(const Config& config) {
  const auto rms = config.first_number({"rms_norm_eps", "rms_norm_epsilon", "rmsnorm_eps"});
  const auto layer = config.first_number(
      {"layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon", "layernorm_eps"});
  if (rms && !layer) return Hint{Kind::RmsNorm, fmt::format("the config has {}", rms->first)};
  if (layer && !rms) return Hint{Kind::LayerNorm, fmt::format("the config has {}", layer->first)};
  if (!rms && (config.has("attention_bias") || config.has("mlp_bias"))) {
    return Hint{Kind::RmsNorm,
                "the config has attention_bias or mlp_bias, as those derived from Llama, and names "
                "no other norm"};
  }
  return std::nullopt;
}

void scale_only(NormFinding& norm, const Evidence& e) {
  const auto named = named_norm(e.config);
  const Architecture* family = norm.family;
  const bool fits =
      family != nullptr && (family->kind == Kind::RmsNorm || family->kind == Kind::LayerNorm);
  if (fits && e.family != nullptr) {
    return decide(norm, family->kind, Certainty::Certain, family_reason(*family, e));
  }
  if (named) return decide(norm, named->kind, Certainty::Certain, named->reason);
  if (const auto hint = key_of_eps(e.config)) {
    return decide(norm, hint->kind, Certainty::Likely, hint->reason);
  }
  const std::string path = lower(norm.path);
  if (path.find("rmsnorm") != path.npos || path.find("rms_norm") != path.npos) {
    return decide(norm, Kind::RmsNorm, Certainty::Likely, "its name says RMSNorm");
  }
  if (fits) return decide(norm, family->kind, Certainty::Likely, family_reason(*family, e));
  decide(norm, Kind::Unknown, Certainty::Undecidable,
         "a gain without a shift: LayerNorm without bias and RMSNorm have the same tensors");
  norm.would_decide = {
      "a config.json with model_type, or with rms_norm_eps, layer_norm_eps or norm_type",
      "the name of the architecture", "the model's source: whether the mean is subtracted",
      "a run: a constant added to all features of its input leaves the output of a LayerNorm as it "
      "is, not that of an RMSNorm"};
  if (!norm.named) {
    norm.reasons.emplace_back(
        "its name is not that of a norm: a PReLU or a learned scale also has "
        "one vector");
  }
}

// --- scale and shift ----------------------------------------------------------------------------

void scale_and_shift(NormFinding& norm, const Evidence& e) {
  const std::string name = lower(std::string(last_part(norm.path)));
  const auto says = [&](std::string_view text) { return name.find(text) != name.npos; };
  if (norm.family != nullptr && norm.family->kind == Kind::LayerNorm) {
    return decide(norm, Kind::LayerNorm,
                  e.family != nullptr ? Certainty::Certain : Certainty::Likely,
                  family_reason(*norm.family, e));
  }
  if (says("group_norm") || says("groupnorm") || name.starts_with("gn")) {
    decide(norm, Kind::GroupNorm, Certainty::Likely, "its name says GroupNorm");
    norm.would_decide = {"the number of groups, which is not in the file"};
    return;
  }
  if (says("instance")) {
    return decide(norm, Kind::InstanceNorm, Certainty::Likely, "its name says InstanceNorm");
  }
  const bool layer = says("layernorm") || says("layer_norm") || name.starts_with("ln");
  if (layer || !e.convolutional) {
    return decide(norm, Kind::LayerNorm, Certainty::Likely,
                  layer ? "gain and shift, and its name says LayerNorm"
                        : "gain and shift without running statistics in a model without stacks of "
                          "convolutions");
  }
  decide(norm, Kind::Unknown, Certainty::Undecidable,
         "gain and shift per channel in a convolutional model, without running statistics: "
         "GroupNorm, InstanceNorm, LayerNorm over the channels and BatchNorm that tracks nothing "
         "have the same tensors");
  norm.would_decide = {"a config.json or the source that names the norm",
                       "the number of groups: 1 per channel is InstanceNorm, fewer GroupNorm"};
}

// --- running statistics -------------------------------------------------------------------------

bool all_equal(const std::vector<double>& values, double to) {
  return std::ranges::all_of(values, [&](double v) { return v == to; });
}

void running_statistics(NormFinding& norm) {
  decide(norm, Kind::BatchNorm, Certainty::Certain,
         "running_mean and running_var; only InstanceNorm with track_running_stats, which is rare, "
         "has them too");
  const bool untouched =
      all_equal(norm.running_var->read(), 1.0) && all_equal(norm.running_mean->read(), 0.0);
  if (norm.batches == nullptr) {
    norm.trained = !untouched;
    norm.reasons.emplace_back(untouched ? "no counter; running_var is exactly 1 and running_mean "
                                          "exactly 0, as before training"
                                        : "no counter; the statistics have moved");
    return;
  }
  const std::vector<double> counter = norm.batches->read();
  const double count = counter.empty() ? 0.0 : counter.front();
  norm.trained = count > 0.0 && !untouched;
  norm.reasons.push_back(
      *norm.trained ? fmt::format("{:.0f} batches were tracked", count)
      : untouched   ? fmt::format("untrained: running_var is exactly 1 and running_mean exactly 0 "
                                    "after {:.0f} batches",
                                  count)
                  : "no batches were tracked, yet the statistics have moved: they were set by hand "
                    "or converted");
}

// --- details ------------------------------------------------------------------------------------

void find_eps(NormFinding& norm, const Evidence& e) {
  const bool own_family = norm.family != nullptr && norm.family->kind == norm.kind;
  std::vector<std::string> keys;
  if (own_family) keys = words(norm.family->eps_keys);
  if (norm.kind == Kind::BatchNorm)
    keys.insert(keys.end(), {"batch_norm_eps", "batch_norm_epsilon"});
  if (norm.kind == Kind::RmsNorm) keys.insert(keys.end(), {"rms_norm_eps", "rms_norm_epsilon"});
  if (norm.kind == Kind::LayerNorm) {
    keys.insert(keys.end(), {"layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon"});
  }
  if (norm.kind != Kind::Unknown && norm.kind != Kind::DynamicTanh) {
    keys.insert(keys.end(), {"norm_eps", "norm_epsilon"});
  }
  if (const auto found = e.config.first_number(keys)) {
    norm.eps = found->second;
  } else if (own_family && e.family != nullptr && norm.family->eps > 0.0) {
    norm.eps = norm.family->eps;
    norm.reasons.push_back(fmt::format("eps is the default of {}", norm.family->name));
  }
}

/// Whether a norm of queries or keys spans one head or the whole projection.
void find_heads(NormFinding& norm, const Evidence& e) {
  if (!is_query_or_key_norm(norm.path) || norm.width == 0) return;
  const bool query = last_part(norm.path).find('q') != std::string_view::npos;
  const std::string module = norm.path.substr(0, norm.path.size() - last_part(norm.path).size());
  const TensorEntry* map = e.list.find(module + (query ? "q_proj.weight" : "k_proj.weight"));
  auto head = e.config.number("head_dim");
  const auto hidden = e.config.number("hidden_size");
  const auto heads = e.config.number("num_attention_heads");
  if (!head && hidden && heads && *heads > 0.0) head = *hidden / *heads;
  const auto width = static_cast<double>(norm.width);
  const bool several = norm.gain != nullptr && norm.gain->dims.size() == 2;
  if (several) {
    norm.per_head = true;
    norm.reasons.push_back(fmt::format("{} heads with gains of their own", norm.gain->dims[0]));
  } else if (map != nullptr && !map->dims.empty() && map->dims[0] != norm.width) {
    norm.per_head = true;
    norm.reasons.push_back(
        fmt::format("width {} of {} projected features: one head", norm.width, map->dims[0]));
  } else if (map != nullptr && !map->dims.empty() && (!head || *head != width)) {
    norm.per_head = false;
    norm.reasons.emplace_back("as wide as the whole projection");
  } else if (head) {
    norm.per_head = *head == width;
    norm.reasons.push_back(fmt::format("the config has heads of {}", *head));
  }
}

void find_offset(NormFinding& norm, const Evidence& e) {
  if (norm.kind != Kind::RmsNorm || norm.gain == nullptr) return;
  if (norm.family != nullptr && norm.family->unit_offset != 0.0) {
    norm.unit_offset = norm.family->unit_offset;
    norm.reasons.emplace_back("multiplies by 1 + the stored gain");
    return;
  }
  const std::vector<double> gains = norm.gain->read();
  double sum = 0.0;
  for (const double g : gains) sum += std::fabs(g);
  const bool small = !gains.empty() && sum < 0.3 * static_cast<double>(gains.size());
  if (!small || e.family != nullptr || is_query_or_key_norm(norm.path)) return;
  norm.certainty = std::min(norm.certainty, Certainty::Likely);
  norm.reasons.emplace_back("the stored gains are near 0: perhaps 1 is added to them, as in Gemma");
  norm.would_decide.emplace_back("a config.json with model_type, for the unit offset");
}

}  // namespace

void judge(NormFinding& norm, const Evidence& e) {
  if (norm.kind == Kind::WeightNorm) {
    decide(norm, norm.kind, Certainty::Certain, "the weight is kept as weight_g and weight_v");
  } else if (norm.kind == Kind::SpectralNorm) {
    decide(norm, norm.kind, Certainty::Certain, "the weight is kept as weight_orig with weight_u");
  } else if (norm.has_running_stats()) {
    running_statistics(norm);
  } else if (norm.alpha != nullptr && norm.alpha->numel() == 1 && norm.gain != nullptr) {
    decide(norm, Kind::DynamicTanh, Certainty::Certain,
           "one alpha beside gain and shift: weight * tanh(alpha x) + bias");
  } else if (norm.gain != nullptr && norm.shift != nullptr) {
    scale_and_shift(norm, e);
  } else if (norm.gain != nullptr) {
    scale_only(norm, e);
  } else {
    decide(norm, Kind::Unknown, Certainty::Undecidable, "a shift without a gain");
    norm.would_decide = {"the model's source"};
  }
  find_eps(norm, e);
  find_heads(norm, e);
  find_offset(norm, e);
}

std::vector<NormFinding> norms_without_tensors(const Evidence& e) {
  std::vector<NormFinding> result;
  if (e.family == nullptr) return result;
  const auto hidden = e.config.number("hidden_size");
  for (const std::string& pattern : words(e.family->without_tensors)) {
    std::set<std::string> paths;
    const std::size_t star = pattern.find('*');
    if (star == pattern.npos) {
      paths.insert(pattern);
    } else {
      // Every number that some tensor has in that place.
      for (const TensorEntry& t : e.list.tensors) {
        if (!t.name.starts_with(pattern.substr(0, star))) continue;
        const std::size_t end = t.name.find('.', star);
        paths.insert(pattern.substr(0, star) + t.name.substr(star, end - star) +
                     pattern.substr(star + 1));
      }
    }
    for (const std::string& path : paths) {
      NormFinding norm{.path = path, .named = true, .family = e.family};
      norm.width = hidden ? static_cast<std::int64_t>(*hidden) : 0;
      decide(norm, e.family->kind, Certainty::Certain,
             family_reason(*e.family, e) + "; it has no tensors");
      find_eps(norm, e);
      result.push_back(std::move(norm));
    }
  }
  return result;
}

}  // namespace steady::examples::inspect
