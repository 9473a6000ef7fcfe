#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <utility>

// What readers and writers of files share: descriptors that close themselves, whole writes, and
// errors where the system would send a signal.

namespace steady::detail {

/// The reason of the last failed call of the system.
inline std::string system_reason() { return std::generic_category().message(errno); }

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

/// A file that is open, or none.
class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(const std::filesystem::path& path, int flags)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  [[nodiscard]] int id() const { return fd_; }
  [[nodiscard]] bool sync() const { return ::fsync(fd_) == 0; }
  [[nodiscard]] bool truncate(off_t size) const { return ::ftruncate(fd_, size) == 0; }
  /// Reports errors that come late. Once.
  bool close() { return fd_ < 0 || ::close(std::exchange(fd_, -1)) == 0; }
  /// All of it, or false with the reason in errno.
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
  int fd_ = -1;
};

}  // namespace steady::detail
