#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <steadygrad/core/gradients.hpp>
#include <steadygrad/core/tensor.hpp>
#include <string>
#include <type_traits>

namespace steady {

/// What one call of an operation's backward sees. A backward reads the gradient that flows into
/// each output, the tensors saved by the forward, and gives a gradient for each input that needs
/// one. It is made of operations itself, so that a recorded backward can be differentiated again.
class BackwardCall {
 public:
  /// Gradient that flows into output `i`; undefined when nothing flowed into it (only possible for
  /// operations with several outputs).
  [[nodiscard]] const Tensor& grad(int i = 0) const { return grads_[static_cast<std::size_t>(i)]; }
  /// Saved tensor `i`, unchanged since the forward.
  [[nodiscard]] const Tensor& saved(int i) const { return saved_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] bool needs(int input) const;
  /// Hands over the gradient of input `input`; ignored when not needed.
  void give(int input, Tensor gradient);
  /// The same, computed only when needed.
  template <std::invocable F>
  void give(int input, F&& make) {
    if (needs(input)) give(input, Tensor(std::forward<F>(make)()));
  }

 private:
  friend class Tape;
  friend struct TapeState;
  std::span<const Tensor> grads_;
  std::span<const Tensor> saved_;
  struct TapeState* state_ = nullptr;
  std::size_t entry_ = 0;
};

/// Options of Tape::backward.
struct BackwardOptions {
  bool record = false;    ///< append the backward to the tape, for second derivatives; implies keep
  bool keep = false;      ///< keep the tape's entries for another backward
  Tensor cotangent = {};  ///< gradient of the output; needed unless it has one element (then 1)
};

/// A recording of operations. While a Tape is alive on its thread, every operation on a tensor that
/// requires a gradient is noted; without one nothing is. Tapes nest: the innermost records.
///
///   Tape tape;
///   Tensor loss = cross_entropy(model(x), y);
///   Gradients gradients = tape.backward(loss);
///
/// A backward without `record` or `keep` ends the recording and frees what was saved, entry by
/// entry; an outer tape then records again. A tensor made on a tape that has ended, or on an outer
/// one, is refused by a recording tape: detach() makes it a constant. So is one that was written to
/// after the tape had noted how it was computed. What another thread computes is a constant to this
/// tape, and a tape ends on the thread where it began.
class Tape {
 public:
  Tape();
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// Gradients of `output` by every leaf that requires one and that it depends on. Throws Error
  /// when `output` is not on this tape, when entries were freed by an earlier backward, when a
  /// saved tensor was changed since, and inside a watcher of this tape; ShapeError when a cotangent
  /// is missing or does not fit. A backward that throws on its way ends the tape unless it is kept.
  [[nodiscard]] Gradients backward(const Tensor& output, const BackwardOptions& options = {});

  /// The same for several outputs at once: gradients of the sum of their inner products with the
  /// cotangents. Outputs that are constants contribute nothing. `options.cotangent` is unused.
  [[nodiscard]] Gradients backward(std::span<const Tensor> outputs,
                                   std::span<const Tensor> cotangents,
                                   const BackwardOptions& options = {});

  /// Calls `watch` with the complete gradient of `x` (a leaf or a result on this tape) during every
  /// later backward, as soon as it is complete. Watching changes no result. What `watch` throws
  /// leaves backward. Throws Error for a constant, on a tape that has ended and inside a watcher.
  void on_gradient(const Tensor& x, std::function<void(const Tensor& gradient)> watch);

  /// Operations noted so far.
  [[nodiscard]] std::int64_t size() const;
  /// Operations held by all tapes of the process.
  [[nodiscard]] static std::int64_t live_entries();

 private:
  std::unique_ptr<struct TapeState> state_;
};

/// While alive, nothing is recorded on this thread.
class NoRecord {
 public:
  NoRecord();
  ~NoRecord();
  NoRecord(const NoRecord&) = delete;
  NoRecord& operator=(const NoRecord&) = delete;
};

/// While alive, tapes on this thread record in spite of a NoRecord outside: for a forward that a
/// backward runs again, on a tape of its own.
class RecordAgain {
 public:
  RecordAgain();
  ~RecordAgain();
  RecordAgain(const RecordAgain&) = delete;
  RecordAgain& operator=(const RecordAgain&) = delete;

 private:
  int paused_;
};

/// Whether a tape is recording on this thread.
[[nodiscard]] bool recording();
/// Whether a recording tape would give this tensor a gradient. Throws as Tape describes.
[[nodiscard]] bool needs_gradient(const Tensor& tensor);

/// In place of a backward: the operation works, and asking for its gradient throws Error by name.
struct NoBackward {};

namespace detail {

using RunBackward = void (*)(const void* closure, BackwardCall& call);

/// Notes an operation. `outputs` must be new tensors. Returns nothing when no input needs a
/// gradient; checks the outputs in anomaly mode in any case.
void record_entry(const char* op, std::span<Tensor> outputs, std::span<const Tensor> inputs,
                  std::span<const Tensor> saved, const void* closure, std::size_t closure_size,
                  RunBackward run);

template <class Backward>
void record_closure(const char* op, std::span<Tensor> outputs, std::span<const Tensor> inputs,
                    std::span<const Tensor> saved, const Backward& backward) {
  static_assert(
      std::is_trivially_copyable_v<Backward> && std::is_trivially_destructible_v<Backward>,
      "a backward captures scalars only: tensors belong in the saved list");
  static_assert(alignof(Backward) <= alignof(std::max_align_t));
  if constexpr (std::same_as<Backward, NoBackward>) {
    record_entry(op, outputs, inputs, {}, nullptr, 0, nullptr);
  } else {
    record_entry(op, outputs, inputs, saved, &backward, sizeof(Backward),
                 [](const void* closure, BackwardCall& call) {
                   (*static_cast<const Backward*>(closure))(call);
                 });
  }
}

}  // namespace detail

/// The only way to make a differentiable result: returns `output` after noting on the recording
/// tape that it came from `inputs` by `op` (a string literal). `backward(BackwardCall&)` captures
/// scalars only; every tensor it needs is in `saved`. Undefined inputs and saved tensors are
/// allowed.
template <class Backward>
[[nodiscard]] Tensor record(const char* op, Tensor output, std::span<const Tensor> inputs,
                            std::span<const Tensor> saved, const Backward& backward) {
  detail::record_closure(op, {&output, 1}, inputs, saved, backward);
  return output;
}

template <class Backward>
[[nodiscard]] Tensor record(const char* op, Tensor output, std::initializer_list<Tensor> inputs,
                            std::initializer_list<Tensor> saved, const Backward& backward) {
  return record(op, std::move(output), std::span(inputs.begin(), inputs.size()),
                std::span(saved.begin(), saved.size()), backward);
}

/// The same for an operation with several outputs (undefined ones are skipped).
template <std::size_t N, class Backward>
[[nodiscard]] std::array<Tensor, N> record(const char* op, std::array<Tensor, N> outputs,
                                           std::initializer_list<Tensor> inputs,
                                           std::initializer_list<Tensor> saved,
                                           const Backward& backward) {
  detail::record_closure(op, std::span<Tensor>(outputs),
                         std::span<const Tensor>(inputs.begin(), inputs.size()),
                         std::span<const Tensor>(saved.begin(), saved.size()), backward);
  return outputs;
}

}  // namespace steady
