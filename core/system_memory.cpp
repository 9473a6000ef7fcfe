#include <steadygrad/core/system_memory.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <steadygrad/core/node_pool.hpp>

namespace steady::detail {
namespace {

constexpr std::size_t Page = 4096;  // whose places blocks share; the system's may be larger
constexpr std::size_t HugePage = std::size_t{2} << 20;

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}
std::size_t pages(std::size_t bytes) {
  return (bytes + page_size() - 1) / page_size() * page_size();
}

constexpr std::size_t StaggerThreshold = Page;
constexpr std::size_t MostStagger = Page;

std::size_t next_stagger() {
  static std::atomic<std::size_t> blocks{0};
  constexpr std::size_t Step = 256, Places = MostStagger / Step;
  return blocks.fetch_add(5, std::memory_order_relaxed) % Places * Step;
}

/// Memory that starts on a huge page and asks for huge pages: it is touched several times faster,
/// and an address found again with one entry of the processor's tables instead of 512.
/// `bytes`: rounded up to pages.
std::byte* map_huge(std::size_t bytes) {
  bytes = pages(bytes);
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
  return static_cast<std::byte*>(result);
}

// Blocks that are smaller than a few huge pages would, each in memory of its own, leave most of it
// to small pages. So they are cut from arenas, which are never unmapped.
constexpr std::size_t ArenaBytes = std::size_t{32} << 20;
constexpr std::size_t LeastOfArena = std::size_t{64} << 10, MostOfArena = std::size_t{8} << 20;

bool in_arena(std::size_t bytes) { return bytes >= LeastOfArena && bytes <= MostOfArena; }

void* cut_from_arena(std::size_t bytes) {
  constexpr std::size_t Stagger = 1280;  // between the ends of neighbours and their starts
  static std::mutex mutex;
  static std::byte* next = nullptr;
  static std::size_t left = 0;
  const std::lock_guard lock(mutex);
  if (left < bytes + Stagger) {
    // The first block starts where the next one of the arena before would have.
    const std::size_t place = reinterpret_cast<std::uintptr_t>(next) % Page;
    const std::size_t enough = (place + bytes + Stagger + HugePage - 1) / HugePage * HugePage;
    std::size_t size = ArenaBytes;
    std::byte* arena = map_huge(size);
    if (arena == nullptr) arena = map_huge(size = enough);
    if (arena == nullptr) return nullptr;
    next = arena + place;
    left = size - place;
  }
  void* block = next;
  next += bytes + Stagger;
  left -= bytes + Stagger;
  return block;
}

/// A block of its own, which remembers in front of it where it was allocated.
void* allocate_staggered(std::size_t bytes) {
  void* start = std::aligned_alloc(Alignment, bytes + MostStagger + Alignment);
  if (start == nullptr) return nullptr;
  std::byte* block = static_cast<std::byte*>(start) + Alignment + next_stagger();
  std::memcpy(block - sizeof(start), &start, sizeof(start));
  return block;
}

}  // namespace

void* take_from_system(std::size_t bytes) {
  if (!Caching || bytes < StaggerThreshold) return std::aligned_alloc(Alignment, bytes);
  if (in_arena(bytes)) return cut_from_arena(bytes);
  if (bytes < LeastOfArena) return allocate_staggered(bytes);
  std::byte* start = map_huge(bytes + MostStagger);
  return start == nullptr ? nullptr : start + next_stagger();
}

bool give_to_system(void* block, std::size_t bytes) {
  if (!Caching || bytes < StaggerThreshold) {
    std::free(block);
    return true;
  }
  const auto place = reinterpret_cast<std::uintptr_t>(block);
  if (in_arena(bytes)) {
    const std::uintptr_t begin = pages(place), end = (place + bytes) / page_size() * page_size();
    if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
    return false;
  }
  if (bytes < LeastOfArena) {
    void* start = nullptr;
    std::memcpy(&start, static_cast<std::byte*>(block) - sizeof(start), sizeof(start));
    std::free(start);
    return true;
  }
  munmap(reinterpret_cast<void*>(place / HugePage * HugePage), pages(bytes + MostStagger));
  return true;
}

}  // namespace steady::detail
