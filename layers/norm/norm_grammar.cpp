#include <steadygrad/layers/norm/norm_grammar.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <steadygrad/core/error.hpp>

namespace steady::detail {
namespace {

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t end; (end = text.find(separator)) != text.npos; text.remove_prefix(end + 1)) {
    parts.push_back(trim(text.substr(0, end)));
  }
  parts.push_back(trim(text));
  return parts;
}

bool is_name(std::string_view text) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !text.empty() && letter(text.front()) &&
         std::ranges::all_of(text, [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

/// Takes `[low..high]` off the end of `text`, either side of which may be open.
void read_range(std::string_view& text, NormOption& option) {
  const std::size_t open = text.find('[');
  if (open == text.npos) return;
  const std::string_view range = text.substr(open);
  const std::size_t dots = range.find("..");
  STEADY_CHECK(Error, dots != range.npos && range.back() == ']', "a range is [low..high]; got '{}'",
               range);
  const std::string_view low = range.substr(1, dots - 1);
  const std::string_view high = range.substr(dots + 2, range.size() - dots - 3);
  STEADY_CHECK(Error,
               (low.empty() || read_number(low, option.low)) &&
                   (high.empty() || read_number(high, option.high)),
               "the bounds of a range are numbers; got '{}'", range);
  text = trim(text.substr(0, open));
}

NormOption read_option(const std::string& name, std::string_view value) {
  NormOption option{.name = name, .otherwise = {}};
  std::vector<std::string_view> choices = split(value, '|');
  read_range(choices.front(), option);
  double number = 0;
  option.number = read_number(choices.front(), number);
  const auto first = choices.begin() + (option.number ? 1 : 0);
  option.words.assign(first, choices.end());
  for (const std::string& word : option.words) {
    STEADY_CHECK(Error, is_name(word), "'{}' is neither a number nor a word", word);
  }
  if (!option.number && choices.size() == 1) {
    STEADY_CHECK(Error, value == "true" || value == "false",
                 "option {} has one possible value, '{}'", name, value);
    option.words = {"true", "false"};
  }
  option.otherwise = canonical_value(option, choices.front());
  return option;
}

std::string allowed(const NormOption& option) {
  std::string text;
  if (option.number) {
    text = "a number";
    if (std::isfinite(option.low)) text += fmt::format(" >= {}", shortest(option.low));
    if (std::isfinite(option.high)) {
      text +=
          fmt::format("{} <= {}", std::isfinite(option.low) ? " and" : "", shortest(option.high));
    }
  }
  if (option.words.empty()) return text;
  return fmt::format("{}{}{}", text, text.empty() ? "" : ", or ", fmt::join(option.words, ", "));
}

}  // namespace

bool read_number(std::string_view text, double& value) {
  double parsed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(parsed)) {
    return false;
  }
  value = parsed;
  return true;
}

std::string shortest(double value) {
  std::array<char, 32> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string text(buffer.data(), end);
  const std::size_t e = text.find('e');
  if (e == text.npos) return text;
  const std::string sign = text[e + 1] == '-' ? "-" : "";
  const std::size_t digits = text.find_first_not_of('0', e + 2);  // "1e-05" is 1e-5
  return text.substr(0, e + 1) + sign + text.substr(digits);
}

std::string canonical_value(const NormOption& option, std::string_view text) {
  double value = 0;
  if (option.number && read_number(text, value)) {
    if (value >= option.low && value <= option.high) return shortest(value);
  } else if (std::ranges::find(option.words, text) != option.words.end()) {
    return std::string(text);
  }
  throw Error(fmt::format("{} cannot be '{}'; it is {}", option.name, text, allowed(option)));
}

NormCall NormCall::parse(const char* what, std::string_view text) {
  const auto check = [&](bool right, std::string_view fault, std::string_view token) {
    STEADY_CHECK(Error, right, "{} '{}': {} '{}'; write name or name(option=value, ...)", what,
                 text, fault, token);
  };
  const std::string_view all = trim(text);
  const std::size_t open = all.find('(');
  NormCall call{.name = std::string(trim(all.substr(0, open)))};
  check(is_name(call.name), "not a name:", call.name);
  if (open == all.npos) return call;
  check(all.back() == ')', "no closing ')' after", all.substr(open));
  const std::string_view inside = trim(all.substr(open + 1, all.size() - open - 2));
  if (inside.empty()) return call;
  for (const std::string_view argument : split(inside, ',')) {
    const std::size_t equals = argument.find('=');
    check(equals != argument.npos, "not option=value:", argument);
    const std::string name(trim(argument.substr(0, equals)));
    const std::string_view value = trim(argument.substr(equals + 1));
    check(is_name(name) && !value.empty(), "not option=value:", argument);
    check(std::ranges::none_of(call.arguments, [&](const auto& a) { return a.first == name; }),
          "given twice:", name);
    call.arguments.emplace_back(name, value);
  }
  return call;
}

NormGrammar NormGrammar::parse(std::string_view line) {
  const NormCall call = NormCall::parse("norm grammar", line);
  NormGrammar grammar{.line = std::string(line), .name = call.name};
  try {
    for (const auto& [name, value] : call.arguments) {
      grammar.options.push_back(read_option(name, value));
    }
  } catch (const Error& error) {
    throw Error(fmt::format("norm grammar '{}': {}", line, error.what()));
  }
  return grammar;
}

}  // namespace steady::detail
