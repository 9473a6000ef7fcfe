#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <steadygrad/core/shape.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/core/tensor.hpp>
#include <string>
#include <utility>
#include <vector>

namespace steady {

/// One operation on a tape. Its inputs, saved tensors and closure lie in the tape's flat arrays.
struct TapeEntry {
  const char* op;
  detail::RunBackward run;  // null: the operation has no backward
  const void* closure;
  std::size_t inputs_begin;
  std::size_t saved_begin;
  std::uint32_t inputs_count;
  std::uint32_t saved_count;
  std::int32_t first_output;
  std::int32_t output_count;
  std::int32_t path;  // index into TapeState::paths, -1 outside anomaly mode
};

/// A value on the tape: a leaf, or an output of an operation.
struct TapeSlot {
  Shape shape{};
  Dtype dtype = Dtype::F32;
  std::int32_t producer = -1;   // entry that made it; -1: a leaf
  std::int32_t first_use = -1;  // earliest entry that reads it
  std::uint64_t version = 0;    // of an output's storage when it was made
  Tensor leaf{};
};

struct SavedTensor {
  Tensor tensor;
  std::uint64_t version;
};

/// Bytes for closures at addresses that stay put.
class ClosureArena {
 public:
  void* copy(const void* closure, std::size_t size);
  void clear() { chunk_ = used_ = 0; }

 private:
  static constexpr std::size_t ChunkBytes = std::size_t{64} << 10;
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  std::size_t chunk_ = 0;
  std::size_t used_ = 0;
};

/// Leaf slots by storage id: open addressing, so that a tape reused in steady state allocates
/// nothing.
class LeafMap {
 public:
  /// The slot of `id`, or where one may be put (-1).
  [[nodiscard]] std::int32_t& at(std::uint64_t id);
  [[nodiscard]] std::size_t size() const { return used_; }
  void clear();

 private:
  void grow();
  std::vector<std::pair<std::uint64_t, std::int32_t>> cells_;  // id 0: free
  std::size_t used_ = 0;
};

struct TapeState {
  std::uint64_t serial = 0;
  bool consumed = false;
  bool running = false;  // a backward
  TapeState* outer = nullptr;
  const char* freed_op = "";

  std::vector<TapeEntry> entries;
  std::vector<std::int32_t> inputs;
  std::vector<SavedTensor> saved;
  std::vector<TapeSlot> slots;
  std::vector<std::string> paths;
  std::vector<std::pair<std::int32_t, std::function<void(const Tensor&)>>> watchers;
  ClosureArena arena;
  LeafMap leaves;

  // of the backward that is running
  std::vector<std::int32_t> roots;  // slots of its outputs
  std::vector<Tensor> gradients;
  std::vector<Tensor> call_grads;
  std::vector<Tensor> call_saved;
  bool recorded_backward = false;

  /// Slot of a tensor on this tape, -1 for a constant; throws for a tensor of another tape.
  [[nodiscard]] std::int32_t slot_of(const Tensor& tensor);
  [[nodiscard]] bool tracks(const Tensor& tensor) const;
  void run(std::int32_t entry, bool keep);
  void deliver(std::size_t entry, int input, Tensor gradient);
  void notify(std::int32_t slot);
  void clear();
};

/// The innermost tape of this thread that has not ended; null when there is none or it is paused.
[[nodiscard]] TapeState* recording_state();

}  // namespace steady
