#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace steady {

/// Options of replace_file.
struct ReplaceFileOptions {
  /// Wait until file and directory are on the disk: `path` is then whole after a power failure too.
  bool sync = false;
};

/// Puts `bytes` where `path` says, replacing a file that is there: written beside it under the name
/// path + ".part" and renamed, so that `path` is the old file or the new one, whole, whenever the
/// process is killed. Throws IoError with the system's reason (a full disk, a limit on the size of
/// files, a directory that may not be written); `path` is then what it was and the part is gone.
void replace_file(const std::filesystem::path& path, std::span<const std::byte> bytes,
                  const ReplaceFileOptions& options = {});

}  // namespace steady
