#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace steady::detail {

/// One of several choices by name, with numbers as options: `pre`, `mix(post=0.25)`. A grammar line
/// per choice says its options, their defaults and ranges, in the form that NormSpec uses.
class NamedChoice {
 public:
  /// Throws Error `what 'text': ...` naming the offending token and the choices.
  [[nodiscard]] static NamedChoice parse(const char* what, std::string_view text,
                                         std::span<const std::string> grammars);

  [[nodiscard]] const std::string& name() const { return name_; }
  /// Place of its grammar line.
  [[nodiscard]] std::size_t index() const { return index_; }
  /// Throws Error for a name that the grammar does not have.
  [[nodiscard]] double number(std::string_view option) const;
  /// The canonical text: options that differ from their defaults.
  [[nodiscard]] std::string text() const;
  friend bool operator==(const NamedChoice&, const NamedChoice&) = default;

 private:
  struct Option {
    std::string name;
    std::string value;
    bool is_default;
    friend bool operator==(const Option&, const Option&) = default;
  };
  std::string name_;
  std::size_t index_ = 0;
  std::vector<Option> options_;
};

}  // namespace steady::detail
