#include "examples/inspect/architectures.hpp"

#include <algorithm>
#include <array>
#include <sstream>
#include <steadygrad/layers/weight_layout.hpp>

namespace steady::examples::inspect {
namespace {

bool has_word(std::string_view text, std::string_view word) {
  const std::vector<std::string> all = words(text);
  return std::ranges::find(all, word) != all.end();
}

bool fits(const Architecture& row, const std::vector<std::string>& tensors) {
  if (row.names.empty()) return false;
  return std::ranges::all_of(words(row.names), [&](std::string pattern) {
    const bool absent = pattern.starts_with('!');
    if (absent) pattern.erase(0, 1);
    // A leading star may stand for nothing: names come with and without a prefix.
    const std::string bare = pattern.starts_with('*') ? pattern.substr(1) : pattern;
    const std::vector<std::string> either{pattern, bare};
    return absent != std::ranges::any_of(
                         tensors, [&](const std::string& name) { return fits_any(either, name); });
  });
}

}  // namespace

std::string_view to_string(Kind kind) {
  constexpr std::array<std::string_view, 9> Names{"unknown",      "layer_norm",  "rms_norm",
                                                  "batch_norm",   "group_norm",  "instance_norm",
                                                  "dynamic_tanh", "weight_norm", "spectral_norm"};
  return Names[static_cast<std::size_t>(kind)];
}

std::string_view to_string(Placement placement) {
  constexpr std::array<std::string_view, 7> Names{"unknown", "pre",      "post",  "sandwich",
                                                  "output",  "parallel", "inside"};
  return Names[static_cast<std::size_t>(placement)];
}

std::vector<std::string> words(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> result;
  for (std::string word; in >> word;) result.push_back(word);
  return result;
}

const Architecture* by_model_type(std::string_view model_type) {
  const auto rows = architectures();
  const auto at = std::ranges::find_if(
      rows, [&](const Architecture& row) { return has_word(row.model_types, model_type); });
  return at == rows.end() ? nullptr : &*at;
}

const Architecture* by_names(const std::vector<std::string>& tensors) {
  const auto rows = architectures();
  const auto at =
      std::ranges::find_if(rows, [&](const Architecture& row) { return fits(row, tensors); });
  return at == rows.end() ? nullptr : &*at;
}

}  // namespace steady::examples::inspect
