#pragma once

#include <cstdint>
#include <steadygrad/core/error.hpp>

namespace steady {

/// Which part of every batch a process takes, of several that share the work: of n samples, those
/// from n * rank / size up to n * (rank + 1) / size. The parts differ by one sample at most, and
/// are empty where there are fewer samples than processes; together, in rank order, they are the
/// batch.
struct Shard {
  std::int64_t rank = 0;  ///< 0 .. size-1
  std::int64_t size = 1;

  [[nodiscard]] std::int64_t begin(std::int64_t n) const { return n * rank / size; }
  [[nodiscard]] std::int64_t count(std::int64_t n) const {
    return n * (rank + 1) / size - begin(n);
  }
};

/// Throws ShapeError unless 0 <= rank < size.
inline void check_shard(const char* op, const Shard& shard) {
  STEADY_CHECK(ShapeError, shard.size >= 1 && shard.rank >= 0 && shard.rank < shard.size,
               "{}: there is no shard {} of {}", op, shard.rank, shard.size);
}

}  // namespace steady
