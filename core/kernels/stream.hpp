#pragma once

#include <cstdint>
#include <steadygrad/core/parallel.hpp>

namespace steady::kernels {

/// Whether a kernel writes `out` past the caches (non-temporal stores). A plain store first fetches
/// the line that it overwrites, which costs memory a third of its time in a copy; a streamed one
/// does not, but nobody finds the line in a cache afterwards. So: only where the bytes read and
/// written together would not stay there anyway, a last-level cache of 32 MiB; for one thread, half
/// of it, as it takes lines from there hardly faster than memory takes streamed ones, while several
/// threads share the memory but not the way to the cache. The bits are the same either way. Whole
/// lines of one output at a time: every vector must start where its size divides the address, so
/// `step` bytes, the distance at which vectors start anew, and `out` are multiples of 64.
inline bool streams(std::int64_t bytes, const void* out, std::int64_t step) {
  const std::int64_t least = std::int64_t{num_threads() > 1 ? 32 : 16} << 20;
  return bytes >= least && step % 64 == 0 && reinterpret_cast<std::uintptr_t>(out) % 64 == 0;
}

}  // namespace steady::kernels
