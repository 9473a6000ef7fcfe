#pragma once

#include <span>
#include <string_view>

namespace steady::examples {

/// A plan as the text of a plan file.
struct BuiltinPlan {
  std::string_view name;
  std::string_view json;
};

/// quick: every question in about five minutes on two cores. default: more depths, rates and seeds,
/// about half an hour. full: deep and long, some hours.
[[nodiscard]] std::span<const BuiltinPlan> builtin_plans();

}  // namespace steady::examples
