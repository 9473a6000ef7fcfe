#pragma once

#include <filesystem>
#include <string_view>

namespace steady::examples {

/// Replaces a file by `text` in one step. Throws IoError naming it.
void write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace steady::examples
