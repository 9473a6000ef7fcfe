#pragma once

#include <string>

namespace steady::detail {

/// "prefix.name", or the name alone at the root.
inline std::string qualified_name(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

}  // namespace steady::detail
