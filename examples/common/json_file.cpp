#include "examples/common/json_file.hpp"

#include <fstream>
#include <steadygrad/core/distributed/world.hpp>
#include <steadygrad/core/error.hpp>

#include "examples/common/text_file.hpp"

namespace steady::examples {

JsonFile::JsonFile(const std::string& path)
    : path_(distributed::world().rank() == 0 ? path : std::string()) {
  if (path_.empty()) return;
  std::error_code ignored;
  STEADY_CHECK(IoError, !std::filesystem::is_directory(path_, ignored), "json: '{}' is a directory",
               path);
  const std::string partial = path + ".part";
  STEADY_CHECK(IoError, std::ofstream(partial).good(), "json: '{}' cannot be written", path);
  std::filesystem::remove(partial, ignored);
}

void JsonFile::write(const nlohmann::json& value) const {
  if (path_.empty()) return;
  // Text of bytes need not be UTF-8, which JSON is.
  write_text_file(path_,
                  value.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
}

}  // namespace steady::examples
