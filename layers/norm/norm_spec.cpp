#include <steadygrad/layers/norm/norm_spec.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/norm_grammar.hpp>
#include <steadygrad/layers/norm/norm_kinds.hpp>

namespace steady {
namespace {

struct Kind {
  detail::NormGrammar grammar;
  NormFactory make;
};

/// All known norms; kinds are only ever added.
class Registry {
 public:
  static Registry& instance() {
    static Registry registry;
    return registry;
  }

  void add(std::string_view grammar, NormFactory make) {
    Kind kind{detail::NormGrammar::parse(grammar), std::move(make)};
    STEADY_CHECK(Error, kind.make != nullptr, "register_norm: '{}' has no factory", grammar);
    const std::lock_guard lock(mutex_);
    for (const Kind& known : kinds_) {
      STEADY_CHECK(Error, known.grammar.name != kind.grammar.name,
                   "register_norm: the name '{}' is taken by {}", kind.grammar.name,
                   known.grammar.line);
    }
    kinds_.push_back(std::move(kind));
  }

  [[nodiscard]] std::optional<Kind> find(std::string_view name) const {
    const std::lock_guard lock(mutex_);
    const auto at =
        std::ranges::find_if(kinds_, [&](const Kind& k) { return k.grammar.name == name; });
    return at == kinds_.end() ? std::nullopt : std::optional(*at);
  }

  [[nodiscard]] std::vector<std::string> names() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> result;
    for (const Kind& kind : kinds_) result.push_back(kind.grammar.name);
    return result;
  }

  [[nodiscard]] std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> result;
    for (const Kind& kind : kinds_) result.push_back(kind.grammar.line);
    return result;
  }

 private:
  Registry() {
    for (detail::NormKind& kind : detail::norm_kinds()) add(kind.grammar, std::move(kind.make));
  }

  mutable std::mutex mutex_;
  std::vector<Kind> kinds_;
};

}  // namespace

const std::string& NormOptions::text(std::string_view name) const {
  const auto at = std::ranges::find_if(values_, [&](const Value& v) { return v.name == name; });
  STEADY_CHECK(Error, at != values_.end(), "norm options: there is no option '{}'", name);
  return at->text;
}

double NormOptions::number(std::string_view name) const {
  double value = 0;
  STEADY_CHECK(Error, detail::read_number(text(name), value), "norm options: {}={} is not a number",
               name, text(name));
  return value;
}

std::int64_t NormOptions::integer(std::string_view name) const {
  const double value = number(name);
  STEADY_CHECK(Error, value == std::floor(value) && std::abs(value) <= 1e15,
               "norm options: {} must be a whole number; got {}", name, text(name));
  return static_cast<std::int64_t>(value);
}

bool NormOptions::flag(std::string_view name) const {
  const std::string& value = text(name);
  STEADY_CHECK(Error, value == "true" || value == "false",
               "norm options: {}={} is neither true nor false", name, value);
  return value == "true";
}

NormSpec NormSpec::parse(std::string_view text) {
  detail::NormCall call = detail::NormCall::parse("norm spec", text);
  const std::optional<Kind> kind = Registry::instance().find(call.name);
  STEADY_CHECK(Error, kind.has_value(), "norm spec '{}': unknown norm '{}'; known: {}", text,
               call.name, fmt::join(Registry::instance().names(), ", "));
  const detail::NormGrammar& grammar = kind->grammar;
  NormSpec spec;
  spec.name_ = call.name;
  for (const detail::NormOption& option : grammar.options) {
    std::string value = option.otherwise;
    const auto given =
        std::ranges::find_if(call.arguments, [&](const auto& a) { return a.first == option.name; });
    if (given != call.arguments.end()) {
      try {
        value = detail::canonical_value(option, given->second);
      } catch (const Error& error) {
        throw Error(
            fmt::format("norm spec '{}': {}; grammar: {}", text, error.what(), grammar.line));
      }
      call.arguments.erase(given);
    }
    spec.options_.values_.push_back({option.name, value, value == option.otherwise});
  }
  STEADY_CHECK(Error, call.arguments.empty(), "norm spec '{}': unknown option '{}'; grammar: {}",
               text, call.arguments.empty() ? "" : call.arguments.front().first, grammar.line);
  return spec;
}

std::string to_string(const NormSpec& spec) {
  std::string options;
  for (const NormOptions::Value& value : spec.options().values_) {
    if (value.is_default) continue;
    options += fmt::format("{}{}={}", options.empty() ? "" : ", ", value.name, value.text);
  }
  return options.empty() ? spec.name() : fmt::format("{}({})", spec.name(), options);
}

std::unique_ptr<Layer> make_norm(const NormSpec& spec, std::int64_t features) {
  STEADY_CHECK(Error, features >= 1, "make_norm: '{}' needs features >= 1; got {}", to_string(spec),
               features);
  std::unique_ptr<Layer> layer =
      Registry::instance().find(spec.name())->make(spec.options(), features);
  STEADY_CHECK(Error, layer != nullptr, "make_norm: the factory of '{}' made nothing", spec.name());
  return layer;
}

void register_norm(std::string_view grammar, NormFactory factory) {
  Registry::instance().add(grammar, std::move(factory));
}

namespace detail {

/// The norm `none`: y = x.
struct NoNorm final : Layer {
  Tensor forward(const Tensor& x) override { return x; }
  [[nodiscard]] std::string describe() const override { return "no norm"; }
};

NormKind none_kind() {
  return {"none", [](const NormOptions&, std::int64_t) { return std::make_unique<NoNorm>(); }};
}

}  // namespace detail

std::vector<std::string> norm_grammars() { return Registry::instance().lines(); }

Layer& Module::add_norm(std::string name, const NormSpec& spec, std::int64_t features) {
  std::unique_ptr<Layer> layer = make_norm(spec, features);
  Layer& result = *layer;
  adopt(std::move(name), std::move(layer), [spec, features](Module& parent, const std::string& as) {
    parent.add_norm(as, spec, features);
  });
  return result;
}

}  // namespace steady
