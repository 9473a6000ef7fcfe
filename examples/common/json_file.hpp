#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace steady::examples {

/// The file of a --json option. Without a name, and on other ranks than 0, it does nothing.
/// Construction throws IoError when
/// the file could not be written, so that a program notices before its work, not after.
class JsonFile {
 public:
  explicit JsonFile(const std::string& path);

  /// Replaces the file by `value` in one step: a reader sees the old content or the new, never a
  /// part. Doubles keep all their digits, NaN and infinities become null. Throws IoError.
  void write(const nlohmann::json& value) const;

 private:
  std::filesystem::path path_;
};

}  // namespace steady::examples
