#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// The text form of norms: name(option=value, ...), and the grammar lines that say what is allowed.

namespace steady::detail {

/// One option of a norm: a number, one of some words, or either.
struct NormOption {
  std::string name;
  std::string otherwise;  ///< the default, in its canonical form
  bool number = false;
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  std::vector<std::string> words{};
};

/// What a grammar line says:
///   name(option=default, ...)
/// where a default is `true` or `false`; a number, then optionally [low..high] with either side
/// open, then optionally |word for other values; or word|word|... of which the first is the
/// default.
struct NormGrammar {
  std::string line;
  std::string name;
  std::vector<NormOption> options{};

  /// Throws Error for a line that is not a grammar.
  [[nodiscard]] static NormGrammar parse(std::string_view line);
};

/// name(a=b, c=d) taken apart; a bare name has no arguments.
struct NormCall {
  std::string name;
  std::vector<std::pair<std::string, std::string>> arguments{};

  /// Throws Error `what 'text': ...` naming the offending token.
  [[nodiscard]] static NormCall parse(const char* what, std::string_view text);
};

/// The one spelling of a value; throws Error with what is allowed instead.
[[nodiscard]] std::string canonical_value(const NormOption& option, std::string_view text);
/// The shortest text that reads back as the same number, in any locale: 0.05, 1e-5.
[[nodiscard]] std::string shortest(double value);
/// True when the whole text is a finite number.
[[nodiscard]] bool read_number(std::string_view text, double& value);

}  // namespace steady::detail
