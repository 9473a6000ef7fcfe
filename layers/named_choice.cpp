#include <steadygrad/layers/named_choice.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/norm_grammar.hpp>

namespace steady::detail {

NamedChoice NamedChoice::parse(const char* what, std::string_view text,
                               std::span<const std::string> grammars) {
  std::string spelled(text);  // words of a name may be joined by hyphens
  std::replace(
      spelled.begin(),
      spelled.begin() + static_cast<std::ptrdiff_t>(std::min(spelled.find('('), spelled.size())),
      '-', '_');
  NormCall call = NormCall::parse(what, spelled);
  NamedChoice choice;
  choice.name_ = call.name;
  for (const std::string& line : grammars) {
    const NormGrammar grammar = NormGrammar::parse(line);
    if (grammar.name != call.name) {
      ++choice.index_;
      continue;
    }
    for (const NormOption& option : grammar.options) {
      const auto given = std::ranges::find_if(
          call.arguments, [&](const auto& argument) { return argument.first == option.name; });
      std::string value = option.otherwise;
      if (given != call.arguments.end()) {
        try {
          value = canonical_value(option, given->second);
        } catch (const Error& error) {
          throw Error(fmt::format("{} '{}': {}; grammar: {}", what, text, error.what(), line));
        }
        call.arguments.erase(given);
      }
      choice.options_.push_back({option.name, value, value == option.otherwise});
    }
    STEADY_CHECK(Error, call.arguments.empty(), "{} '{}': unknown option '{}'; grammar: {}", what,
                 text, call.arguments.empty() ? "" : call.arguments.front().first, line);
    return choice;
  }
  throw Error(fmt::format("{} '{}': unknown; known: {}", what, text, fmt::join(grammars, ", ")));
}

double NamedChoice::number(std::string_view option) const {
  const auto at = std::ranges::find_if(options_, [&](const Option& o) { return o.name == option; });
  double value = 0;
  STEADY_CHECK(Error, at != options_.end() && read_number(at->value, value),
               "'{}': has no number '{}'", name_, option);
  return value;
}

std::string NamedChoice::text() const {
  std::string options;
  for (const Option& option : options_) {
    if (option.is_default) continue;
    options += fmt::format("{}{}={}", options.empty() ? "" : ", ", option.name, option.value);
  }
  return options.empty() ? name_ : fmt::format("{}({})", name_, options);
}

}  // namespace steady::detail
