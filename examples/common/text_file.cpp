#include "examples/common/text_file.hpp"

#include <span>
#include <steadygrad/core/io/replace_file.hpp>

namespace steady::examples {

void write_text_file(const std::filesystem::path& path, std::string_view text) {
  replace_file(path, std::as_bytes(std::span(text)));
}

}  // namespace steady::examples
