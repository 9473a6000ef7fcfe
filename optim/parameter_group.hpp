#pragma once

#include <functional>
#include <optional>
#include <steadygrad/core/parameter.hpp>

namespace steady {

/// Parameters that an optimizer treats differently. What a group does not set is the optimizer's.
///
///   AdamW(model.parameters(), {.lr = 1e-3, .groups = {
///       {.matches = has_role({Role::Embedding}), .weight_decay = 0.0},
///       {.matches = [](const Parameter& p) { return p.name == "head.weight"; }, .lr_scale = 0.1},
///   }});
struct ParameterGroup {
  /// Which parameters; of several groups the first that matches counts, and every group must have
  /// at least one.
  std::function<bool(const Parameter&)> matches;
  double lr_scale = 1.0;  ///< times the optimizer's rate, whatever a schedule makes of that
  /// Replaces weight decay for all parameters of the group, whatever their role.
  std::optional<double> weight_decay = std::nullopt;
};

/// For ParameterGroup::matches: the parameters of these roles.
[[nodiscard]] inline std::function<bool(const Parameter&)> has_role(RoleSet roles) {
  return [roles](const Parameter& p) { return roles.contains(p.role); };
}

/// The roles that weight decay applies to by default: not biases, norm gains and norm shifts.
inline constexpr RoleSet DecayRoles = {Role::Weight, Role::Embedding};

}  // namespace steady
