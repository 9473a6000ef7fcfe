#include <steadygrad/core/io/mapped_file.hpp>

#include <sys/mman.h>
#include <sys/stat.h>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/descriptor-inl.hpp>

namespace steady {

using detail::Descriptor;
using detail::system_reason;

MappedFile::MappedFile(const char* op, const std::filesystem::path& path) {
  // Without O_NONBLOCK the open of a pipe would wait for a writer.
  const Descriptor file(path, O_RDONLY | O_NONBLOCK);
  STEADY_CHECK(IoError, file.is_open(), "{}: cannot open '{}': {}", op, path.string(),
               system_reason());
  struct stat status {};
  STEADY_CHECK(IoError, ::fstat(file.id(), &status) == 0, "{}: cannot look at '{}': {}", op,
               path.string(), system_reason());
  STEADY_CHECK(IoError, S_ISREG(status.st_mode), "{}: '{}' is not a regular file", op,
               path.string());
  if (status.st_size == 0) return;
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.id(), 0);
  STEADY_CHECK(IoError, data != MAP_FAILED, "{}: cannot map '{}': {}", op, path.string(),
               system_reason());
  data_ = static_cast<const std::byte*>(data);
  size_ = size;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace steady
