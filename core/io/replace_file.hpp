#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace steady {

/// Puts `bytes` where `path` says, replacing a file that is there: written beside it under the name
/// path + ".part" and renamed, so that `path` is the old file or the new one, whole, whenever the
/// process is killed. (What survives a power failure is up to the file system.) Throws IoError with
/// the system's reason; `path` is then what it was.
void replace_file(const std::filesystem::path& path, std::span<const std::byte> bytes);

}  // namespace steady
