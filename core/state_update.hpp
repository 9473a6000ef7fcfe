#pragma once

namespace steady {

/// While alive, no layer changes its own state on this thread: a training forward computes what it
/// always does, but running statistics and counters stay as they are. For a forward that is not a
/// training step: probing, recomputation, differences. gradcheck and gradcheck_second hold one.
///
///   const NoStateUpdate probe;
///   Tensor activations = model(x);   // train mode, and the buffers keep their bits
class NoStateUpdate {
 public:
  NoStateUpdate();
  ~NoStateUpdate();
  NoStateUpdate(const NoStateUpdate&) = delete;
  NoStateUpdate& operator=(const NoStateUpdate&) = delete;
};

/// Whether layers may change their state on this thread: no NoStateUpdate is alive.
[[nodiscard]] bool state_updates();

}  // namespace steady
