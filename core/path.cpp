#include <steadygrad/core/path.hpp>

#include <vector>

namespace steady {
namespace {

thread_local std::vector<std::string_view> open_scopes;

}  // namespace

PathScope::PathScope(std::string_view name) { open_scopes.push_back(name); }
PathScope::~PathScope() { open_scopes.pop_back(); }

std::string current_path() {
  std::string path;
  for (const std::string_view name : open_scopes) {
    if (name.empty()) continue;
    if (!path.empty()) path += '.';
    path += name;
  }
  return path;
}

}  // namespace steady
