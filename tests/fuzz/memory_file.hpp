#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace steady::fuzz {

/// A file in memory, for readers that take a path.
class MemoryFile {
 public:
  MemoryFile(const std::uint8_t* data, std::size_t size) : id_(memfd_create("fuzz", 0)) {
    if (id_ < 0 || write(id_, data, size) != static_cast<ssize_t>(size)) std::abort();
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(id_); }

  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(id_); }

 private:
  int id_;
};

}  // namespace steady::fuzz
