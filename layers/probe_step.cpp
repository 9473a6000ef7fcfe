#include <algorithm>
#include <steadygrad/layers/probe.hpp>

namespace steady {
namespace {

/// One pattern: the usual walk that returns to the last '*' on a mismatch.
bool matches_one(std::string_view pattern, std::string_view path) {
  std::size_t p = 0;
  std::size_t s = 0;
  std::size_t star = std::string_view::npos;
  std::size_t resume = 0;
  while (s < path.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = s;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == path[s])) {
      ++p;
      ++s;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      s = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace

bool matches(std::string_view patterns, std::string_view path) {
  for (std::size_t begin = 0;;) {
    const std::size_t comma = patterns.find(',', begin);
    if (matches_one(patterns.substr(begin, comma - begin), path)) return true;
    if (comma == std::string_view::npos) return false;
    begin = comma + 1;
  }
}

std::string_view to_string(Observed what) {
  switch (what) {
    case Observed::Input:
      return "input";
    case Observed::Output:
      return "output";
    case Observed::OutputGradient:
      return "output_gradient";
    case Observed::Parameter:
      return "value";
    case Observed::ParameterGradient:
      return "gradient";
    case Observed::Update:
      return "update";
  }
  return "?";
}

const ProbeSample* ProbeStep::find(std::string_view path, Observed what, int call) const {
  const auto at = std::ranges::find_if(samples, [&](const ProbeSample& s) {
    return s.path == path && s.what == what && s.call == call;
  });
  return at == samples.end() ? nullptr : &*at;
}

std::optional<double> ProbeStep::measure(std::string_view path, std::string_view name,
                                         int call) const {
  const auto at = std::ranges::find_if(measures, [&](const ProbeMeasure& m) {
    return m.path == path && m.name == name && m.call == call;
  });
  return at == measures.end() ? std::nullopt : std::optional(at->value);
}

}  // namespace steady
