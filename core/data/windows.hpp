#pragma once

#include <cstdint>
#include <steadygrad/core/data/batches.hpp>
#include <steadygrad/core/tensor.hpp>
#include <vector>

namespace steady {

struct WindowOptions {
  std::int64_t context = 128;  ///< tokens per window (T), at least 1
  std::int64_t size = 16;      ///< windows per batch (B), at least 1
  std::uint64_t seed = 0;      ///< of the drawing, together with `epoch`
  std::int64_t epoch = 0;      ///< each epoch draws anew
  bool shuffle = true;         ///< false: every token once, in order
  std::int64_t start = 0;      ///< first batch to yield, to resume in the middle of an epoch
  Shard shard = {};            ///< the part of each batch to yield, of processes that share them
};

/// Windows of a token sequence of length N for predicting the next token, as batches:
///   for (const Batch& batch : windows(text.train, {.context = 128, .size = 16, .epoch = 3})) ...
/// batch.x and batch.y are i64 [B, T]; y is x one token further.
///
/// Shuffled: windows begin at random places, drawn with replacement from all N - T; an epoch has
/// (N - 1) / T windows (rounded down), about as many tokens as the sequence, in full batches only.
/// The draw is a pure function of (seed, epoch).
///
/// Not shuffled: windows follow each other without overlap, so that each of the N - 1 targets comes
/// exactly once and a loss summed over them does not depend on `size`. The last batch may have
/// fewer windows; what is left then, 1 to T-1 tokens, is a batch [1, rest] of its own.
class Windows {
 public:
  /// tokens: i64 [N]. Throws ShapeError for another shape or dtype, for context or size below 1,
  /// N < context + 1, fewer windows than one shuffled batch needs, start outside [0, count()], a
  /// shard outside its size.
  Windows(Tensor tokens, const WindowOptions& options);

  /// Batches in the whole epoch, those before `start` included.
  [[nodiscard]] std::int64_t count() const { return count_; }
  /// Windows of full length in the epoch.
  [[nodiscard]] std::int64_t full_windows() const { return std::ssize(begins_); }
  /// Batch `index` in 0 .. count()-1, else ShapeError. Its `first` is that of its first window in
  /// the epoch's order.
  [[nodiscard]] Batch operator[](std::int64_t index) const;

  class Iterator {
   public:
    Iterator(const Windows& windows, std::int64_t index) : windows_(&windows), index_(index) {}
    Batch operator*() const { return (*windows_)[index_]; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.index_ == b.index_; }

   private:
    const Windows* windows_;
    std::int64_t index_;
  };
  [[nodiscard]] Iterator begin() const { return {*this, start_}; }
  [[nodiscard]] Iterator end() const { return {*this, count_}; }

 private:
  Tensor tokens_;
  std::vector<std::int64_t> begins_;  // of the full windows
  std::int64_t context_;
  std::int64_t size_;
  std::int64_t start_;
  Shard shard_;
  std::int64_t count_ = 0;
  std::int64_t rest_ = 0;  // targets after the last full window; 0 when shuffled
};

[[nodiscard]] Windows windows(const Tensor& tokens, const WindowOptions& options = {});

}  // namespace steady
