#include <steadygrad/core/storage.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/node_pool.hpp>
#include <steadygrad/core/system_memory.hpp>
#include <vector>

namespace steady {
namespace {

using detail::Alignment;
using detail::Caching;
using detail::give_to_system;
using detail::take_from_system;

constexpr std::size_t Classes = 256;

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

/// Small storages of one thread: written by that thread alone, read by all.
struct SmallCounts {
  std::atomic<std::int64_t> live{0};
  std::atomic<std::int64_t> live_blocks{0};
  std::atomic<std::int64_t> high{0};  // `live` up to which the peak is known

  std::int64_t add(std::int64_t bytes, std::int64_t blocks) {
    constexpr auto Relaxed = std::memory_order_relaxed;
    const std::int64_t sum = live.load(Relaxed) + bytes;
    live.store(sum, Relaxed);
    live_blocks.store(live_blocks.load(Relaxed) + blocks, Relaxed);
    return sum;
  }
};

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
    if (block == nullptr) block = take(c, size);
    if (poisoned()) std::memset(block, 0xFF, c.bytes);
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
      (void)give_to_system(block, c.bytes);
    }
  }

  void trim() {
    detail::trim_nodes();
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < Classes; ++i) {
      empty_[i].reserve(empty_[i].size() + free_[i].size());
      for (void* block : free_[i]) {
        if (!give_to_system(block, class_bytes(i))) empty_[i].push_back(block);
      }
      free_[i].clear();
    }
    stats_.cached = 0;
  }

  MemoryStats stats() {
    const std::lock_guard lock(mutex_);
    MemoryStats sum = stats_;
    for (const SmallCounts* counts : threads_) {
      sum.live += counts->live.load(std::memory_order_relaxed);
      sum.live_blocks += counts->live_blocks.load(std::memory_order_relaxed);
    }
    sum.mapped += detail::nodes_mapped();
    sum.peak = std::max(sum.peak, sum.live);
    return sum;
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    stats_.peak = live();
    for (SmallCounts* counts : threads_) {
      counts->high.store(counts->live.load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
  }
  void note_high(SmallCounts& counts) {
    const std::lock_guard lock(mutex_);
    stats_.peak = std::max(stats_.peak, live());
    counts.high.store(counts.live.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  void enter(SmallCounts* counts) {
    const std::lock_guard lock(mutex_);
    threads_.push_back(counts);
  }
  /// The counts of a thread that ends become nobody's.
  void leave(const SmallCounts* counts) {
    const std::lock_guard lock(mutex_);
    std::erase(threads_, counts);
    stats_.live += counts->live.load(std::memory_order_relaxed);
    stats_.live_blocks += counts->live_blocks.load(std::memory_order_relaxed);
  }
  /// A small storage made or freed after its thread's counts had gone.
  void count_late(std::int64_t bytes, std::int64_t blocks) {
    const std::lock_guard lock(mutex_);
    stats_.live += bytes;
    stats_.live_blocks += blocks;
    stats_.peak = std::max(stats_.peak, live());
  }
  [[nodiscard]] bool poisoned() const { return poisoned_.load(std::memory_order_relaxed) > 0; }
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

  void* take(const SizeClass& c, std::int64_t size) {
    void* block = take_new(c);
    if (block == nullptr) {
      trim();
      block = take_new(c);
    }
    STEADY_CHECK(Error, block != nullptr,
                 "memory: the system has no block of {} bytes; {} are live", size, stats().live);
    const std::lock_guard lock(mutex_);
    ++stats_.mapped;
    count(size);
    return block;
  }

  void* take_new(const SizeClass& c) {
    {
      const std::lock_guard lock(mutex_);
      auto& empty = empty_[c.index];
      if (!empty.empty()) {
        void* block = empty.back();
        empty.pop_back();
        return block;
      }
    }
    return take_from_system(c.bytes);
  }

  void count(std::int64_t size) {
    stats_.live += size;
    ++stats_.live_blocks;
    stats_.peak = std::max(stats_.peak, live());
  }

  /// Under the lock.
  [[nodiscard]] std::int64_t live() const {
    std::int64_t sum = stats_.live;
    for (const SmallCounts* counts : threads_) sum += counts->live.load(std::memory_order_relaxed);
    return sum;
  }

  std::mutex mutex_;
  std::array<std::vector<void*>, Classes> free_;
  std::array<std::vector<void*>, Classes> empty_;  // places whose memory the system has back
  MemoryStats stats_;
  std::vector<SmallCounts*> threads_;
  std::atomic<int> poisoned_{0};
};

/// Never destroyed: tensors with static lifetime may outlive every other static object.
Allocator& allocator() {
  static Allocator& instance = *std::make_unique<Allocator>().release();
  return instance;
}

std::atomic<std::uint64_t> next_id{1};

// --- small storages: header and elements in one node -------------------------------------------

constexpr std::size_t HeaderBytes = 64;
constexpr std::int64_t SmallBytes =
    Caching ? static_cast<std::int64_t>(
                  detail::NodeBytes[static_cast<std::size_t>(detail::Node::Block)] - HeaderBytes)
            : -1;
static_assert(sizeof(Storage) <= HeaderBytes);

/// Null before the thread's first small storage and after its end.
constinit thread_local SmallCounts* small_counts = nullptr;
constinit thread_local bool thread_ended = false;

struct CountsOfThread {
  SmallCounts counts;
  CountsOfThread() {
    allocator().enter(&counts);
    small_counts = &counts;
  }
  ~CountsOfThread() {
    small_counts = nullptr;
    thread_ended = true;
    allocator().leave(&counts);
  }
  CountsOfThread(const CountsOfThread&) = delete;
  CountsOfThread& operator=(const CountsOfThread&) = delete;
};

void count_small(std::int64_t bytes, std::int64_t blocks) {
  if (small_counts == nullptr) [[unlikely]] {
    if (thread_ended) return allocator().count_late(bytes, blocks);
    thread_local CountsOfThread counts;
  }
  SmallCounts& counts = *small_counts;
  if (counts.add(bytes, blocks) > counts.high.load(std::memory_order_relaxed)) {
    allocator().note_high(counts);
  }
}

}  // namespace

MemoryStats memory_stats() { return allocator().stats(); }
void reset_peak_memory() { allocator().reset_peak(); }
void trim_memory() { allocator().trim(); }

PoisonMemory::PoisonMemory() { allocator().poison(1); }
PoisonMemory::~PoisonMemory() { allocator().poison(-1); }

Storage* Storage::create(std::int64_t bytes) {
  STEADY_CHECK(Error, bytes >= 0, "storage: size must not be negative; got {}", bytes);
  const std::uint64_t id = next_id.fetch_add(1, std::memory_order_relaxed);
  if (bytes > SmallBytes) {
    void* header = detail::take_node(detail::Node::Body);
    try {
      return new (header) Storage(allocator().allocate(bytes), bytes, id);
    } catch (...) {
      detail::give_node(detail::Node::Body, header);
      throw;
    }
  }
  auto* node = static_cast<std::byte*>(detail::take_node(detail::Node::Block));
  count_small(bytes, 1);
  if (allocator().poisoned()) [[unlikely]]
    std::memset(node + HeaderBytes, 0xFF, static_cast<std::size_t>(SmallBytes));
  return new (node) Storage(node + HeaderBytes, bytes, id);
}

void Storage::destroy() {
  if (size_ > SmallBytes) {
    allocator().deallocate(data_, size_);
    this->~Storage();
    detail::give_node(detail::Node::Body, this);
    return;
  }
  count_small(-size_, -1);
  this->~Storage();
  detail::give_node(detail::Node::Block, this);
}

}  // namespace steady
