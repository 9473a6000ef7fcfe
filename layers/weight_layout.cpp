#include <steadygrad/layers/weight_layout.hpp>

#include <algorithm>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/layers/decoder.hpp>

namespace steady {
namespace {

using Texts = std::vector<std::string_view>;

/// What the stars of `pattern` stand for in `name`, each as short as will do; nothing when it does
/// not fit. Every part between two stars goes to its first place, so the time is linear.
std::optional<Texts> match(std::string_view pattern, std::string_view name) {
  std::size_t star = pattern.find('*');
  if (name.substr(0, star) != pattern.substr(0, star)) return std::nullopt;
  if (star == pattern.npos) return Texts{};
  Texts stars;
  for (std::size_t at = star;;) {
    const std::size_t part = star + 1;
    star = pattern.find('*', part);
    const std::string_view text = pattern.substr(part, star - part);
    const bool last = star == pattern.npos;
    if (last && (name.size() < at + 1 + text.size() || !name.ends_with(text))) return std::nullopt;
    const std::size_t found = last ? name.size() - text.size() : name.find(text, at + 1);
    if (found == name.npos) return std::nullopt;
    stars.push_back(name.substr(at, found - at));
    if (last) return stars;
    at = found + text.size();
  }
}

/// The channels of the flattened image that a matrix reads; 0 when it reads none, or cannot.
std::int64_t flattened_channels(const WeightLayout& layout, std::string_view name,
                                const Tensor& t) {
  for (const auto& [pattern, channels] : layout.flattened) {
    STEADY_CHECK(Error, channels >= 1, "weight layout: '{}' needs channels of at least 1; got {}",
                 pattern, channels);
    if (!fits_any({pattern}, name)) continue;
    return t.rank() == 2 && t.dim(1) % channels == 0 ? channels : 0;
  }
  return 0;
}

/// The columns of [out, a * b], read as a by b, in the order b by a.
Tensor reorder_columns(const Tensor& t, std::int64_t a) {
  const std::int64_t b = t.dim(1) / a;
  return reshape(permute(reshape(t, {t.dim(0), a, b}), {0, 2, 1}), t.shape());
}

}  // namespace

std::optional<std::string> rewrite(std::string_view pattern, std::string_view replacement,
                                   std::string_view name) {
  STEADY_CHECK(Error, std::ranges::count(pattern, '*') == std::ranges::count(replacement, '*'),
               "weight layout: '{}' and '{}' have other numbers of stars", pattern, replacement);
  const std::optional<Texts> stars = match(pattern, name);
  if (!stars) return std::nullopt;
  std::string result;
  std::size_t next = 0;
  for (const char c : replacement) {
    if (c == '*') {
      result += (*stars)[next++];
    } else {
      result += c;
    }
  }
  return result;
}

bool fits_any(const std::vector<std::string>& patterns, std::string_view name) {
  return std::ranges::any_of(
      patterns, [&](const std::string& pattern) { return match(pattern, name).has_value(); });
}

bool is_transposed(const WeightLayout& layout, std::string_view our_name) {
  const bool flattened = std::ranges::any_of(
      layout.flattened, [&](const auto& f) { return fits_any({f.name}, our_name); });
  return !flattened && fits_any(layout.transposed, our_name);
}

std::string our_name(const WeightLayout& layout, std::string_view theirs) {
  for (const WeightLayout::Rename& rule : layout.rename) {
    if (auto name = rewrite(rule.theirs, rule.ours, theirs)) return *std::move(name);
  }
  return std::string(theirs);
}

std::string their_name(const WeightLayout& layout, std::string_view ours) {
  for (const WeightLayout::Rename& rule : layout.rename) {
    if (rule.load_only) continue;
    if (auto name = rewrite(rule.ours, rule.theirs, ours)) return *std::move(name);
  }
  return std::string(ours);
}

Tensor to_ours(const WeightLayout& layout, std::string_view our_name, const Tensor& theirs) {
  if (const std::int64_t channels = flattened_channels(layout, our_name, theirs)) {
    return reorder_columns(theirs.detach(), channels);
  }
  if (theirs.rank() != 2 || !is_transposed(layout, our_name)) return theirs;
  return transpose(theirs.detach(), 0, 1);
}

Tensor to_theirs(const WeightLayout& layout, std::string_view our_name, const Tensor& ours) {
  if (const std::int64_t channels = flattened_channels(layout, our_name, ours)) {
    return reorder_columns(ours.detach(), ours.dim(1) / channels);
  }
  if (ours.rank() != 2 || !is_transposed(layout, our_name)) return ours;
  return transpose(ours.detach(), 0, 1);
}

WeightLayout weight_layout(const Decoder& model) {
  const FamilyNames& names = family_names(model.o.family);
  WeightLayout layout;
  for (const std::string& part :
       {names.layers, names.tokens, names.positions, names.embed_norm, names.final_norm}) {
    layout.rename.push_back({part + ".*", names.stack + "." + part + ".*", true});
  }
  if (model.o.tied) {
    layout.tied.push_back({names.head + ".weight", names.stack + "." + names.tokens + ".weight"});
  }
  if (model.o.family == Family::Gpt2) {
    for (const char* part : {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"}) {
      layout.transposed.push_back(fmt::format("*.{}.weight", part));
    }
    layout.ignored = {"*.attn.bias", "*.attn.masked_bias"};
  } else if (model.o.family == Family::Llama) {
    layout.ignored = {"*.rotary_emb.inv_freq"};
  }
  return layout;
}

void check_layout(const WeightLayout& layout, const State& ours) {
  for (const auto& [pattern, channels] : layout.flattened) {
    STEADY_CHECK(Error, channels >= 1, "weight layout: '{}' needs channels of at least 1; got {}",
                 pattern, channels);
    bool used = false;
    for (const auto& [name, value] : ours) {
      if (!fits_any({pattern}, name)) continue;
      used = true;
      STEADY_CHECK(ShapeError, value.rank() != 2 || value.dim(1) % channels == 0,
                   "weight layout: the columns of '{}' are not a multiple of {} channels; got {}",
                   name, channels, describe(value));
    }
    STEADY_CHECK(Error, used, "weight layout: the model has nothing like the flattened '{}'",
                 pattern);
  }
}

}  // namespace steady
