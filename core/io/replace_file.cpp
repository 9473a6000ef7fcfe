#include <steadygrad/core/io/replace_file.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <steadygrad/core/error.hpp>
#include <string>
#include <system_error>
#include <utility>

namespace steady {
namespace {

std::string system_reason() { return std::generic_category().message(errno); }

/// While alive, writing beyond the limit on the size of files is an error of write() on this
/// thread instead of the signal that ends the process.
class LimitIsAnError {
 public:
  LimitIsAnError() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    sigset_t pending;
    sigpending(&pending);
    ours_ = sigismember(&pending, SIGXFSZ) == 0;
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~LimitIsAnError() {
    const timespec now{};
    while (ours_ && sigtimedwait(&signal_, nullptr, &now) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  LimitIsAnError(const LimitIsAnError&) = delete;
  LimitIsAnError& operator=(const LimitIsAnError&) = delete;

 private:
  sigset_t signal_;
  sigset_t before_;
  bool ours_ = true;
};

class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  [[nodiscard]] bool sync() const { return ::fsync(fd_) == 0; }
  /// Reports errors that come late. Once.
  bool close() { return fd_ < 0 || ::close(std::exchange(fd_, -1)) == 0; }
  [[nodiscard]] bool write(std::span<const std::byte> bytes) const {
    constexpr std::size_t AtOnce = std::size_t{1} << 30;
    while (!bytes.empty()) {
      const ssize_t done = ::write(fd_, bytes.data(), std::min(bytes.size(), AtOnce));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(done));
    }
    return true;
  }

 private:
  int fd_;
};

}  // namespace

void replace_file(const std::filesystem::path& path, std::span<const std::byte> bytes,
                  const ReplaceFileOptions& options) {
  std::filesystem::path part = path;
  part += ".part";
  const LimitIsAnError limit;
  Descriptor file(part, O_WRONLY | O_CREAT | O_TRUNC);
  STEADY_CHECK(IoError, file.is_open(), "write: cannot create '{}': {}", part.string(),
               system_reason());
  const auto fail = [&](const char* what, const std::filesystem::path& which) {
    const std::string reason = system_reason();
    ::unlink(part.c_str());
    throw IoError(fmt::format("write: cannot {} '{}': {}", what, which.string(), reason));
  };
  if (!file.write(bytes) || (options.sync && !file.sync()) || !file.close()) fail("write", part);
  if (std::rename(part.c_str(), path.c_str()) != 0) fail("replace", path);
  if (!options.sync) return;
  const std::filesystem::path parent = path.has_parent_path() ? path.parent_path() : ".";
  const Descriptor directory(parent, O_RDONLY | O_DIRECTORY);
  // Some file systems cannot sync a directory and say EINVAL.
  STEADY_CHECK(IoError, directory.is_open() && (directory.sync() || errno == EINVAL),
               "write: cannot sync '{}': {}", parent.string(), system_reason());
}

}  // namespace steady
