#include <steadygrad/core/storage.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <steadygrad/core/error.hpp>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define STEADY_EXACT_BLOCKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STEADY_EXACT_BLOCKS 1
#endif
#endif

namespace steady {
namespace {

constexpr std::size_t Alignment = 64;
constexpr std::size_t HugePage = std::size_t{2} << 20;
constexpr std::size_t HugeThreshold = std::size_t{4} << 20;
constexpr std::size_t Classes = 256;

#ifdef STEADY_EXACT_BLOCKS
constexpr bool Caching = false;  // the address sanitizer must see every block's true bounds
#else
constexpr bool Caching = true;
#endif

struct SizeClass {
  std::size_t index;
  std::size_t bytes;
};

/// Multiples of 64 up to 256 bytes, then four classes per power of two: at most a quarter unused.
SizeClass size_class(std::size_t bytes) {
  const std::size_t n = std::max(bytes, std::size_t{1});
  if (n <= 256) return {(n - 1) / 64, ((n - 1) / 64 + 1) * 64};
  const auto exponent = static_cast<std::size_t>(std::bit_width(n - 1)) - 1;
  const std::size_t step = std::size_t{1} << (exponent - 2);
  const std::size_t quarter = ((n - 1) >> (exponent - 2)) & 3;
  return {exponent * 4 + quarter, (std::size_t{1} << exponent) + (quarter + 1) * step};
}

/// Bytes of the blocks in class `index`.
std::size_t class_bytes(std::size_t index) {
  if (index < 4) return (index + 1) * 64;
  const std::size_t exponent = index / 4;
  return (std::size_t{1} << exponent) + (index % 4 + 1) * (std::size_t{1} << (exponent - 2));
}

/// A block of `bytes` (a multiple of Alignment) from the system, or null. Big blocks start on a
/// huge page and ask for huge pages: touching them is then several times cheaper.
void* take_from_system(std::size_t bytes) {
  if (!Caching || bytes < HugeThreshold) return std::aligned_alloc(Alignment, bytes);
  void* block =
      mmap(nullptr, bytes + HugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<std::uintptr_t>(block);
  const std::uintptr_t aligned = (start + HugePage - 1) & ~(HugePage - 1);
  if (aligned > start) munmap(block, aligned - start);
  const std::uintptr_t end = aligned + bytes;
  if (start + bytes + HugePage > end) {
    munmap(reinterpret_cast<void*>(end), start + bytes + HugePage - end);
  }
  void* result = reinterpret_cast<void*>(aligned);
  madvise(result, bytes, MADV_HUGEPAGE);
  return result;
}

void give_to_system(void* block, std::size_t bytes) {
  if (!Caching || bytes < HugeThreshold) {
    std::free(block);
  } else {
    munmap(block, bytes);
  }
}

class Allocator {
 public:
  std::byte* allocate(std::int64_t size) {
    const SizeClass c = size_class_of(size);
    void* block = nullptr;
    {
      const std::lock_guard lock(mutex_);
      auto& free = free_[c.index];
      if (!free.empty()) {
        block = free.back();
        free.pop_back();
        stats_.cached -= static_cast<std::int64_t>(c.bytes);
      }
      if (block != nullptr) count(size);
    }
    if (block == nullptr) block = map(c, size);
    if (poisoned_.load(std::memory_order_relaxed) > 0) std::memset(block, 0xFF, c.bytes);
    return static_cast<std::byte*>(block);
  }

  void deallocate(std::byte* block, std::int64_t size) {
    const SizeClass c = size_class_of(size);
    const std::lock_guard lock(mutex_);
    stats_.live -= size;
    --stats_.live_blocks;
    if (Caching) {
      free_[c.index].push_back(block);
      stats_.cached += static_cast<std::int64_t>(c.bytes);
    } else {
      give_to_system(block, c.bytes);
    }
  }

  void trim() {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < Classes; ++i) {
      for (void* block : free_[i]) give_to_system(block, class_bytes(i));
      free_[i].clear();
    }
    stats_.cached = 0;
  }

  MemoryStats stats() {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    stats_.peak = stats_.live;
  }
  void poison(int change) { poisoned_.fetch_add(change); }

 private:
  static SizeClass size_class_of(std::int64_t size) {
    SizeClass c = size_class(static_cast<std::size_t>(size));
    if (!Caching) {
      c.bytes = (static_cast<std::size_t>(std::max<std::int64_t>(size, 1)) + Alignment - 1) /
                Alignment * Alignment;
    }
    return c;
  }

  void* map(const SizeClass& c, std::int64_t size) {
    void* block = take_from_system(c.bytes);
    if (block == nullptr) {
      trim();
      block = take_from_system(c.bytes);
    }
    STEADY_CHECK(Error, block != nullptr,
                 "memory: the system has no block of {} bytes; {} are live", size, stats().live);
    const std::lock_guard lock(mutex_);
    ++stats_.mapped;
    count(size);
    return block;
  }

  void count(std::int64_t size) {
    stats_.live += size;
    ++stats_.live_blocks;
    stats_.peak = std::max(stats_.peak, stats_.live);
  }

  std::mutex mutex_;
  std::array<std::vector<void*>, Classes> free_;
  MemoryStats stats_;
  std::atomic<int> poisoned_{0};
};

/// Never destroyed: tensors with static lifetime may outlive every other static object.
Allocator& allocator() {
  static Allocator& instance = *std::make_unique<Allocator>().release();
  return instance;
}

std::atomic<std::uint64_t> next_id{1};

}  // namespace

MemoryStats memory_stats() { return allocator().stats(); }
void reset_peak_memory() { allocator().reset_peak(); }
void trim_memory() { allocator().trim(); }

PoisonMemory::PoisonMemory() { allocator().poison(1); }
PoisonMemory::~PoisonMemory() { allocator().poison(-1); }

Storage* Storage::create(std::int64_t bytes) {
  STEADY_CHECK(Error, bytes >= 0, "storage: size must not be negative; got {}", bytes);
  std::byte* data = allocator().allocate(bytes);
  return new Storage(data, bytes, next_id.fetch_add(1, std::memory_order_relaxed));
}

void Storage::destroy() {
  allocator().deallocate(data_, size_);
  delete this;
}

}  // namespace steady
