#pragma once

#include <string>
#include <string_view>

namespace steady {

/// Names the part of a model that is running on this thread, while alive. `name` must outlive it.
class PathScope {
 public:
  explicit PathScope(std::string_view name);
  ~PathScope();
  PathScope(const PathScope&) = delete;
  PathScope& operator=(const PathScope&) = delete;
};

/// The names of the open scopes joined by dots, empty ones skipped: "layers.0.norm1".
[[nodiscard]] std::string current_path();

}  // namespace steady
