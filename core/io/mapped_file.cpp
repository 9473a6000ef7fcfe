#include <steadygrad/core/io/mapped_file.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <steadygrad/core/error.hpp>
#include <system_error>

namespace steady {
namespace {

std::string system_reason() { return std::generic_category().message(errno); }

/// An open file, closed with the object.
class Descriptor {
 public:
  // Without O_NONBLOCK the open of a pipe would wait for a writer.
  explicit Descriptor(const char* path) : id_(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (id_ >= 0) ::close(id_);
  }
  [[nodiscard]] int id() const { return id_; }

 private:
  int id_;
};

}  // namespace

MappedFile::MappedFile(const char* op, const std::filesystem::path& path) {
  const Descriptor file(path.c_str());
  STEADY_CHECK(IoError, file.id() >= 0, "{}: cannot open '{}': {}", op, path.string(),
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
