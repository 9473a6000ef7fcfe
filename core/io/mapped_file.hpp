#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

namespace steady {

/// A regular file as memory that can be read, mapped privately. Pages come in when they are looked
/// at. What another process writes into the file meanwhile may or may not show; a file that shrinks
/// under the mapping ends the process with SIGBUS when the lost part is read, as with every
/// mapping: replace files (replace_file), do not rewrite them in place.
class MappedFile {
 public:
  MappedFile() = default;
  /// Throws IoError with the system's reason, `op` first.
  MappedFile(const char* op, const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace steady
