#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace steady {

/// What the caching allocator holds, in bytes (and blocks). Storages of up to 192 bytes come from
/// lists that each thread keeps for itself: what waits there is not in `cached`, and `peak` may
/// miss some of their bytes.
struct MemoryStats {
  std::int64_t live = 0;         ///< asked for and not yet given back
  std::int64_t cached = 0;       ///< kept for reuse, owned by no tensor
  std::int64_t peak = 0;         ///< largest `live` since the last reset_peak_memory()
  std::int64_t live_blocks = 0;  ///< storages alive
  std::int64_t mapped = 0;  ///< times a block got memory of the system; constant in steady state
};

[[nodiscard]] MemoryStats memory_stats();
/// Starts a new peak at the present number of live bytes.
void reset_peak_memory();
/// Gives the memory of every cached block back to the system, and what the calling thread keeps for
/// itself. Of blocks between 64 KiB and 8 MiB the addresses stay taken, for blocks of their size.
void trim_memory();

/// While alive, every new block is filled with 0xFF bytes (NaN in float32 and float64), so that an
/// element which a kernel forgets to write shows. For tests.
class PoisonMemory {
 public:
  PoisonMemory();
  ~PoisonMemory();
  PoisonMemory(const PoisonMemory&) = delete;
  PoisonMemory& operator=(const PoisonMemory&) = delete;
};

/// A reference-counted block of bytes, aligned to 64, with the version counter that guards values
/// saved for backward: every writer raises the version and leaves its name.
class Storage {
 public:
  /// A new block of at least `bytes`; throws Error naming the size when the system has none left.
  static Storage* create(std::int64_t bytes);

  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
  }

  [[nodiscard]] std::byte* bytes() const { return data_; }
  [[nodiscard]] std::int64_t size() const { return size_; }
  /// Unique over the life of the process: the identity of a parameter.
  [[nodiscard]] std::uint64_t id() const { return id_; }
  [[nodiscard]] bool unique() const { return references_.load(std::memory_order_acquire) == 1; }

  [[nodiscard]] std::uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  [[nodiscard]] const char* writer() const { return writer_.load(std::memory_order_relaxed); }
  /// Notes a write by `writer` (a string literal).
  void touch(const char* writer) {
    version_.fetch_add(1, std::memory_order_relaxed);
    writer_.store(writer, std::memory_order_relaxed);
  }

  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

 private:
  Storage(std::byte* data, std::int64_t size, std::uint64_t id)
      : data_(data), size_(size), id_(id) {}
  ~Storage() = default;
  void destroy();

  std::byte* data_;
  std::int64_t size_;
  std::uint64_t id_;
  std::atomic<std::uint64_t> version_{0};
  std::atomic<const char*> writer_{"creation"};
  std::atomic<std::int32_t> references_{1};
};

}  // namespace steady
