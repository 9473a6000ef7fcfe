#pragma once

#include <cstdint>
#include <span>
#include <steadygrad/core/data/dataset.hpp>
#include <steadygrad/core/data/shard.hpp>
#include <vector>

namespace steady {

/// What becomes of the samples that do not fill a last batch.
/// Keep: they form a shorter batch (a single sample makes BatchNorm in training mode throw).
/// Drop: this epoch leaves them out. Merge: they join the batch before.
enum class Tail { Keep, Drop, Merge };

struct BatchOptions {
  std::int64_t size = 64;  // samples per batch, at least 1
  std::uint64_t seed = 0;  // of the order, together with `epoch`
  std::int64_t epoch = 0;  // each epoch has an order of its own
  bool shuffle = true;     // false: the order of the data set
  Tail tail = Tail::Keep;
  std::int64_t start = 0;  // first batch to yield, to resume in the middle of an epoch
  Shard shard = {};        // the part of each batch to yield, of processes that share the batches
};

struct Batch {
  Tensor x;                // [size, ...]
  Tensor y;                // [size, ...]
  std::int64_t index = 0;  // of the batch in its epoch
  std::int64_t first = 0;  // position of its first sample in the epoch's order
  [[nodiscard]] std::int64_t size() const { return y.dim(0); }
};

/// The batches of one epoch, in order:
///   for (const Batch& batch : batches(train, {.size = 64, .seed = 42, .epoch = 3})) ...
/// The order is a pure function of (seed, epoch): nothing is saved to resume, and other random
/// numbers do not disturb it. A batch is copied together when it is reached; random access is fine.
/// With a shard, order and batches are those of all processes and only the part is copied, which
/// may be empty.
class Batches {
 public:
  /// Throws ShapeError for a data set without samples, a size below 1, a start outside
  /// [0, count()], a shard outside its size and for options under which there is no batch at all.
  Batches(Dataset data, const BatchOptions& options);

  /// Batches in the whole epoch, those before `start` included.
  [[nodiscard]] std::int64_t count() const { return count_; }
  /// Samples in batch `index`, of all shards together.
  [[nodiscard]] std::int64_t size(std::int64_t index) const;
  /// Samples in the smallest batch: 1 warns of trouble with BatchNorm before an epoch begins.
  [[nodiscard]] std::int64_t smallest() const;
  /// Batch `index` in 0 .. count()-1, else ShapeError.
  [[nodiscard]] Batch operator[](std::int64_t index) const;
  /// The rows of the data set in this epoch's order.
  [[nodiscard]] std::span<const std::int64_t> order() const { return order_; }

  class Iterator {
   public:
    Iterator(const Batches& batches, std::int64_t index) : batches_(&batches), index_(index) {}
    Batch operator*() const { return (*batches_)[index_]; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.index_ == b.index_; }

   private:
    const Batches* batches_;
    std::int64_t index_;
  };
  [[nodiscard]] Iterator begin() const { return {*this, start_}; }
  [[nodiscard]] Iterator end() const { return {*this, count_}; }

 private:
  Dataset data_;
  std::vector<std::int64_t> order_;
  std::int64_t size_;
  std::int64_t start_;
  Shard shard_;
  std::int64_t count_ = 0;
  std::int64_t used_ = 0;  // samples the epoch shows
};

[[nodiscard]] Batches batches(const Dataset& data, const BatchOptions& options = {});

}  // namespace steady
