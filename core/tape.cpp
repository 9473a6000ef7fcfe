#include <steadygrad/core/tape.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <steadygrad/core/anomaly.hpp>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/accumulate.hpp>
#include <steadygrad/core/path.hpp>
#include <steadygrad/core/tape_state.hpp>

namespace steady {
namespace {

thread_local TapeState* current_tape = nullptr;
thread_local int paused = 0;
thread_local std::unique_ptr<TapeState> spare_state;  // the memory of the last tape, for the next

std::atomic<std::uint64_t> next_serial{1};
std::atomic<std::int64_t> live{0};

/// y + x; in place where one of them is free to be overwritten, as an operation when `recorded`.
Tensor add_gradients(Tensor a, Tensor b, bool recorded) {
  return dispatch_float("backward", a.dtype(), [&]<FloatElement T>() {
    if (!recorded) {
      if (!a.unique()) a.swap(b);
      if (!a.unique()) a = a.detached_copy();
      kernels::accumulate<T>(a.mutable_data<T>("backward"), b.data<T>());
      return a;
    }
    Tensor sum = a.detached_copy();
    kernels::accumulate<T>(sum.mutable_data<T>("backward"), b.data<T>());
    return record("accumulate", sum, {a, b}, {}, [](BackwardCall& call) {
      call.give(0, call.grad());
      call.give(1, call.grad());
    });
  });
}

/// The same numbers in memory that nothing else shares.
Tensor own(Tensor gradient) {
  if (gradient.unique()) return gradient;
  return record("copy", gradient.detached_copy(), {gradient}, {},
                [](BackwardCall& call) { call.give(0, call.grad()); });
}

}  // namespace

TapeState* recording_state() {
  if (paused > 0) return nullptr;
  TapeState* tape = current_tape;
  while (tape != nullptr && tape->consumed) tape = tape->outer;
  return tape;
}

// --- flat memory -------------------------------------------------------------------------------

void* ClosureArena::copy(const void* closure, std::size_t size) {
  constexpr std::size_t Align = alignof(std::max_align_t);
  const std::size_t bytes = (size + Align - 1) / Align * Align;
  STEADY_CHECK(Error, bytes <= ChunkBytes, "record: a backward of {} bytes is too large", size);
  if (used_ + bytes > ChunkBytes) {
    ++chunk_;
    used_ = 0;
  }
  if (chunk_ == chunks_.size()) chunks_.push_back(std::make_unique<std::byte[]>(ChunkBytes));
  void* place = chunks_[chunk_].get() + used_;
  if (size > 0) std::memcpy(place, closure, size);
  used_ += bytes;
  return place;
}

std::int32_t& LeafMap::at(std::uint64_t id) {
  if (2 * (used_ + 1) > cells_.size()) grow();
  const std::size_t mask = cells_.size() - 1;
  for (std::size_t i = id * 0x9E3779B97F4A7C15ULL >> 32 & mask;; i = (i + 1) & mask) {
    if (cells_[i].first == id) return cells_[i].second;
    if (cells_[i].first == 0) {
      ++used_;
      cells_[i] = {id, -1};
      return cells_[i].second;
    }
  }
}

void LeafMap::grow() {
  std::vector<std::pair<std::uint64_t, std::int32_t>> old(
      std::max<std::size_t>(64, 2 * cells_.size()));
  old.swap(cells_);
  used_ = 0;
  for (const auto& [id, slot] : old) {
    if (id != 0) at(id) = slot;
  }
}

void LeafMap::clear() {
  if (used_ > 0) std::ranges::fill(cells_, std::pair<std::uint64_t, std::int32_t>{0, -1});
  used_ = 0;
}

void TapeState::clear() {
  live.fetch_sub(static_cast<std::int64_t>(entries.size()), std::memory_order_relaxed);
  entries.clear();
  inputs.clear();
  saved.clear();
  slots.clear();
  paths.clear();
  watchers.clear();
  gradients.clear();
  call_grads.clear();
  call_saved.clear();
  arena.clear();
  leaves.clear();
}

// --- recording ---------------------------------------------------------------------------------

bool TapeState::tracks(const Tensor& tensor) const {
  if (!tensor.defined()) return false;
  const detail::TensorBody& body = tensor.body();
  if (body.serial == 0) return body.requires_grad;
  STEADY_CHECK(Error, body.serial == serial,
               "tape: {} was computed on another tape; call detach() to use it as a constant",
               describe(tensor));
  return true;
}

std::int32_t TapeState::slot_of(const Tensor& tensor) {
  if (!tracks(tensor)) return -1;
  const detail::TensorBody& body = tensor.body();
  if (body.serial != 0) {
    const TapeSlot& made = slots[static_cast<std::size_t>(body.slot)];
    STEADY_CHECK(Error, tensor.storage().version() == made.version,
                 "tape: {} was overwritten by '{}' after '{}' had computed it, which no gradient "
                 "would know of; write to a detached_copy() instead",
                 describe(tensor), tensor.storage().writer(),
                 entries[static_cast<std::size_t>(made.producer)].op);
    return body.slot;
  }
  std::int32_t& slot = leaves.at(tensor.storage().id());
  if (slot < 0) {
    slot = static_cast<std::int32_t>(slots.size());
    slots.push_back({.shape = body.shape, .dtype = body.dtype, .leaf = tensor});
  }
  const TapeSlot& known = slots[static_cast<std::size_t>(slot)];
  STEADY_CHECK(ShapeError, known.shape == body.shape && known.dtype == body.dtype,
               "tape: two leaves share one storage with different shapes; got {} and {}",
               describe(known.leaf), describe(tensor));
  return slot;
}

namespace detail {

void record_entry(const char* op, std::span<Tensor> outputs, std::span<const Tensor> inputs,
                  std::span<const Tensor> saved, const void* closure, std::size_t closure_size,
                  RunBackward run) {
  if (anomaly_mode()) check_forward(op, outputs, inputs);
  TapeState* state = recording_state();
  if (state == nullptr) return;
  bool needed = false;
  for (const Tensor& input : inputs) needed |= state->tracks(input);
  if (!needed) return;
  for (const Tensor& output : outputs) {
    STEADY_CHECK(Error,
                 !output.defined() || (output.body().serial == 0 && !output.body().requires_grad),
                 "record: an output of '{}' is not a new tensor", op);
  }

  const auto index = static_cast<std::int32_t>(state->entries.size());
  const std::size_t inputs_begin = state->inputs.size();
  for (const Tensor& input : inputs) {
    const std::int32_t slot = state->slot_of(input);
    state->inputs.push_back(slot);
    if (slot < 0) continue;
    std::int32_t& first = state->slots[static_cast<std::size_t>(slot)].first_use;
    if (first < 0) first = index;
  }
  const std::size_t saved_begin = state->saved.size();
  for (const Tensor& tensor : saved) {
    state->saved.push_back({tensor, tensor.defined() ? tensor.storage().version() : 0});
  }
  std::int32_t path = -1;
  if (anomaly_mode()) {
    path = static_cast<std::int32_t>(state->paths.size());
    state->paths.push_back(current_path());
  }
  state->entries.push_back({.op = op,
                            .run = run,
                            .closure = state->arena.copy(closure, closure_size),
                            .inputs_begin = inputs_begin,
                            .saved_begin = saved_begin,
                            .inputs_count = static_cast<std::uint32_t>(inputs.size()),
                            .saved_count = static_cast<std::uint32_t>(saved.size()),
                            .first_output = static_cast<std::int32_t>(state->slots.size()),
                            .output_count = static_cast<std::int32_t>(outputs.size()),
                            .path = path});
  live.fetch_add(1, std::memory_order_relaxed);
  for (const Tensor& output : outputs) {
    TapeSlot slot{.producer = index};
    if (output.defined()) {
      slot.shape = output.shape();
      slot.dtype = output.dtype();
      slot.version = output.storage().version();
      output.body().serial = state->serial;
      output.body().slot = static_cast<std::int32_t>(state->slots.size());
    }
    state->slots.push_back(std::move(slot));
  }
}

}  // namespace detail

bool recording() { return recording_state() != nullptr; }

bool needs_gradient(const Tensor& tensor) {
  const TapeState* state = recording_state();
  return state != nullptr && state->tracks(tensor);
}

NoRecord::NoRecord() { ++paused; }
NoRecord::~NoRecord() { --paused; }

RecordAgain::RecordAgain() : paused_(std::exchange(paused, 0)) {}
RecordAgain::~RecordAgain() { paused = paused_; }

// --- backward ----------------------------------------------------------------------------------

bool BackwardCall::needs(int input) const {
  return state_->inputs[state_->entries[entry_].inputs_begin + static_cast<std::size_t>(input)] >=
         0;
}

void BackwardCall::give(int input, Tensor gradient) {
  state_->deliver(entry_, input, std::move(gradient));
}

void TapeState::deliver(std::size_t entry, int input, Tensor gradient) {
  const TapeEntry e = entries[entry];
  const std::int32_t slot = inputs[e.inputs_begin + static_cast<std::size_t>(input)];
  if (slot < 0) return;
  const TapeSlot& target = slots[static_cast<std::size_t>(slot)];
  STEADY_CHECK(
      ShapeError,
      gradient.defined() && gradient.shape() == target.shape && gradient.dtype() == target.dtype,
      "backward of '{}': gradient of input {} must be {} {}; got {}", e.op, input,
      to_string(target.dtype), to_string(target.shape), describe(gradient));
  const auto check = [&](const Tensor& made) {
    if (!detail::anomaly_mode()) return;
    const std::string path = e.path < 0 ? "" : paths[static_cast<std::size_t>(e.path)];
    detail::check_backward(e.op, path, input, made);
  };
  check(gradient);
  Tensor& sum = gradients[static_cast<std::size_t>(slot)];
  if (!sum.defined()) {
    sum = std::move(gradient);
  } else {
    sum = add_gradients(std::move(sum), std::move(gradient), recorded_backward);
    check(sum);  // two finite gradients may add up to infinity
  }
}

void TapeState::notify(std::int32_t slot) {
  if (watchers.empty()) return;
  const Tensor& gradient = gradients[static_cast<std::size_t>(slot)];
  if (!gradient.defined()) return;
  const NoRecord pause;
  for (const auto& [watched, watch] : watchers) {
    if (watched == slot) watch(gradient);
  }
}

void TapeState::run(std::int32_t index, bool keep) {
  const auto entry = static_cast<std::size_t>(index);
  const TapeEntry e = entries[entry];
  call_grads.clear();
  bool reached = false;
  for (std::int32_t i = 0; i < e.output_count; ++i) {
    const std::int32_t slot = e.first_output + i;
    notify(slot);
    Tensor& gradient = gradients[static_cast<std::size_t>(slot)];
    reached |= gradient.defined();
    call_grads.push_back(std::move(gradient));
  }
  if (reached) {
    STEADY_CHECK(Error, e.run != nullptr, "{}: this operation has no backward", e.op);
    call_saved.clear();
    for (std::uint32_t i = 0; i < e.saved_count; ++i) {
      SavedTensor& s = saved[e.saved_begin + i];
      STEADY_CHECK(Error, !s.tensor.defined() || s.tensor.storage().version() == s.version,
                   "{}: saved tensor {} ({}) was overwritten by '{}' before backward (version {} "
                   "was saved, now {}); write to a copy instead",
                   e.op, i, describe(s.tensor), s.tensor.storage().writer(), s.version,
                   s.tensor.storage().version());
      call_saved.push_back(keep ? s.tensor : std::move(s.tensor));
    }
    BackwardCall call;
    call.grads_ = call_grads;
    call.saved_ = call_saved;
    call.state_ = this;
    call.entry_ = entry;
    const detail::InBackward scope;
    e.run(e.closure, call);
    call_saved.clear();
  } else if (!keep) {
    for (std::uint32_t i = 0; i < e.saved_count; ++i) saved[e.saved_begin + i].tensor.reset();
  }
  call_grads.clear();
  if (watchers.empty()) return;
  for (std::uint32_t i = 0; i < e.inputs_count; ++i) {
    const std::int32_t slot = inputs[e.inputs_begin + i];
    if (slot < 0) continue;
    const TapeSlot& s = slots[static_cast<std::size_t>(slot)];
    const auto* seen = &inputs[e.inputs_begin];
    if (s.producer < 0 && s.first_use == index && std::find(seen, seen + i, slot) == seen + i) {
      notify(slot);
    }
  }
}

Tape::Tape() : state_(std::move(spare_state)) {
  if (!state_) state_ = std::make_unique<TapeState>();
  state_->serial = next_serial.fetch_add(1, std::memory_order_relaxed);
  state_->consumed = false;
  state_->outer = std::exchange(current_tape, state_.get());
}

Tape::~Tape() {
  TapeState** link = &current_tape;
  while (*link != nullptr && *link != state_.get()) link = &(*link)->outer;
  state_->clear();
  if (*link != nullptr) {
    *link = state_->outer;
    spare_state = std::move(state_);
  } else {
    // Another thread began this tape and still points at it: it stays, ended and empty.
    state_->consumed = true;
    (void)state_.release();
  }
}

std::int64_t Tape::size() const { return static_cast<std::int64_t>(state_->entries.size()); }
std::int64_t Tape::live_entries() { return live.load(std::memory_order_relaxed); }

void Tape::on_gradient(const Tensor& x, std::function<void(const Tensor&)> watch) {
  STEADY_CHECK(Error, !state_->consumed, "on_gradient: this tape has ended");
  STEADY_CHECK(Error, !state_->running, "on_gradient: a backward of this tape is running");
  const std::int32_t slot = state_->slot_of(x);
  STEADY_CHECK(Error, slot >= 0, "on_gradient: the tensor has no gradient on this tape; got {}",
               describe(x));
  state_->watchers.emplace_back(slot, std::move(watch));
}

namespace {

Tensor seed_gradient(const Tensor& output, const Tensor& cotangent) {
  if (!cotangent.defined()) {
    STEADY_CHECK(ShapeError, output.numel() == 1,
                 "backward: an output of several elements needs a cotangent; got {}",
                 describe(output));
    return Tensor::ones(output.shape(), output.dtype());
  }
  STEADY_CHECK(ShapeError,
               cotangent.shape() == output.shape() && cotangent.dtype() == output.dtype(),
               "backward: the cotangent must be like the output {}; got {}", describe(output),
               describe(cotangent));
  return cotangent;
}

/// Ends a backward, however it ends: clears its scratch, and the tape unless it is kept.
class BackwardGuard {
 public:
  BackwardGuard(TapeState& state, bool keep) : state_(state), keep_(keep) { state_.running = true; }
  ~BackwardGuard() {
    state_.running = false;
    state_.gradients.clear();
    state_.call_grads.clear();
    state_.call_saved.clear();
    state_.recorded_backward = false;
    if (keep_) return;
    state_.consumed = true;
    state_.freed_op = state_.entries.empty() ? "" : state_.entries.back().op;
    state_.saved.clear();
  }
  BackwardGuard(const BackwardGuard&) = delete;
  BackwardGuard& operator=(const BackwardGuard&) = delete;

 private:
  TapeState& state_;
  bool keep_;
};

}  // namespace

Gradients Tape::backward(const Tensor& output, const BackwardOptions& options) {
  check_defined("backward", "output", output);
  const Tensor seed = seed_gradient(output, options.cotangent);
  STEADY_CHECK(
      Error, state_->consumed || state_->tracks(output),
      "backward: the output is not on this tape: it was computed before the tape began, or "
      "nothing it depends on requires a gradient; got {}",
      describe(output));
  return backward({&output, 1}, {&seed, 1}, options);
}

Gradients Tape::backward(std::span<const Tensor> outputs, std::span<const Tensor> cotangents,
                         const BackwardOptions& options) {
  TapeState& s = *state_;
  STEADY_CHECK(Error, !s.running,
               "backward: a backward of this tape is running; a watcher cannot start another");
  STEADY_CHECK(Error, !s.consumed,
               "backward: the operations of this tape, the last one '{}', were freed by an earlier "
               "backward; pass {{.keep = true}} to that one",
               s.freed_op);
  STEADY_CHECK(Error, !options.record || recording_state() == &s,
               "backward: only the innermost tape can record its backward");
  STEADY_CHECK(ShapeError, outputs.size() == cotangents.size(),
               "backward: needs one cotangent for each output; got {} and {}", outputs.size(),
               cotangents.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) (void)seed_gradient(outputs[i], cotangents[i]);

  const bool keep = options.keep || options.record;
  const BackwardGuard guard(s, keep);
  paused += options.record ? 0 : 1;
  struct Resume {
    int by;
    ~Resume() { paused -= by; }
  } const resume{options.record ? 0 : 1};

  std::vector<std::int32_t>& roots = s.roots;
  roots.clear();
  for (const Tensor& output : outputs) roots.push_back(s.slot_of(output));
  const std::size_t slots = s.slots.size();
  s.recorded_backward = options.record;
  s.gradients.assign(slots, Tensor());
  std::int32_t last = -1;
  for (std::size_t i = 0; i < roots.size(); ++i) {
    if (roots[i] < 0) continue;
    Tensor& sum = s.gradients[static_cast<std::size_t>(roots[i])];
    sum = sum.defined() ? add_gradients(std::move(sum), cotangents[i], options.record)
                        : cotangents[i];
    last = std::max(last, s.slots[static_cast<std::size_t>(roots[i])].producer);
  }
  for (std::int32_t index = last; index >= 0; --index) s.run(index, keep);

  Gradients result;
  result.reserve(s.leaves.size());
  for (std::size_t i = 0; i < slots; ++i) {
    if (!s.slots[i].leaf.defined() || !s.gradients[i].defined()) continue;
    if (s.slots[i].first_use < 0 || s.slots[i].first_use > last) {
      s.notify(static_cast<std::int32_t>(i));
    }
    Tensor leaf = s.slots[i].leaf;
    result.insert(std::move(leaf), own(std::move(s.gradients[i])));
  }
  return result;
}

}  // namespace steady
