#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

namespace steady::kernels {

/// Working memory that grows and is then kept, aligned to 64 bytes: a kernel called again with the
/// same shapes maps nothing. The contents are undefined after every take().
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { release(); }

  /// `count` elements of T; invalidates what an earlier take() of this object returned.
  template <class T>
  [[nodiscard]] std::span<T> take(std::int64_t count) {
    const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(count, 1)) * sizeof(T);
    if (bytes > capacity_) {
      release();
      data_ = ::operator new(bytes, Alignment);
      capacity_ = bytes;
    }
    return {static_cast<T*>(data_), static_cast<std::size_t>(count)};
  }

 private:
  static constexpr std::align_val_t Alignment{64};

  void release() {
    if (data_ != nullptr) ::operator delete(data_, Alignment);
    data_ = nullptr;
    capacity_ = 0;
  }

  void* data_ = nullptr;
  std::size_t capacity_ = 0;
};

/// The calling thread's scratch for the use named by `Tag`: uses that are alive at the same time
/// need different tags.
template <class Tag>
[[nodiscard]] Scratch& thread_scratch() {
  thread_local Scratch scratch;
  return scratch;
}

}  // namespace steady::kernels
