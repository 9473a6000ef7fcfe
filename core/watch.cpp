#include <steadygrad/core/watch.hpp>

#include <steadygrad/core/tape_state.hpp>
#include <utility>

namespace steady {

std::uint64_t recording_tape() {
  const TapeState* tape = recording_state();
  return tape == nullptr ? 0 : tape->serial;
}

bool watch_gradient(const Tensor& x, std::function<void(const Tensor&)> watch) {
  TapeState* tape = recording_state();
  if (tape == nullptr || tape->running || !x.defined()) return false;
  const detail::TensorBody& body = x.body();
  if (body.serial == 0) {
    if (!body.requires_grad) return false;
    const std::int32_t known = tape->leaves.at(x.storage().id());
    if (known >= 0 && tape->slots[static_cast<std::size_t>(known)].shape != body.shape)
      return false;
  } else if (body.serial != tape->serial ||
             x.storage().version() != tape->slots[static_cast<std::size_t>(body.slot)].version) {
    return false;
  }
  tape->watchers.emplace_back(tape->slot_of(x), std::move(watch));
  return true;
}

}  // namespace steady
