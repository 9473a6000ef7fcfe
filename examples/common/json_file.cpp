#include "examples/common/json_file.hpp"

#include <fstream>
#include <steadygrad/core/error.hpp>

namespace steady::examples {
namespace {

std::filesystem::path partial_path(const std::filesystem::path& path) {
  std::filesystem::path partial = path;
  return partial += ".partial";
}

}  // namespace

JsonFile::JsonFile(const std::string& path) : path_(path) {
  if (path_.empty()) return;
  std::error_code ignored;
  STEADY_CHECK(IoError, !std::filesystem::is_directory(path_, ignored), "json: '{}' is a directory",
               path);
  const auto partial = partial_path(path_);
  STEADY_CHECK(IoError, std::ofstream(partial).good(), "json: '{}' cannot be written", path);
  std::filesystem::remove(partial, ignored);
}

void JsonFile::write(const nlohmann::json& value) const {
  if (path_.empty()) return;
  const auto partial = partial_path(path_);
  std::ofstream out(partial, std::ios::binary);
  // Text of bytes need not be UTF-8, which JSON is.
  out << value.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  out.close();
  std::error_code failure;
  if (out.good()) std::filesystem::rename(partial, path_, failure);
  STEADY_CHECK(IoError, out.good() && !failure, "json: '{}' cannot be written", path_.string());
}

}  // namespace steady::examples
