#pragma once

#include <cstdint>
#include <functional>
#include <steadygrad/core/tensor.hpp>

namespace steady {

/// Which tape records on this thread: a number that no other tape of the process has; 0 for none.
[[nodiscard]] std::uint64_t recording_tape();

/// Tape::on_gradient of the tape that records on this thread: `watch` is called with the complete
/// gradient of `x` in every later backward of that tape, and changes no result. Returns false, and
/// watches nothing, where there is no gradient to come: no tape records, `x` is a constant to it, a
/// tensor of another tape or written to since, or a backward of that tape is running.
bool watch_gradient(const Tensor& x, std::function<void(const Tensor& gradient)> watch);

}  // namespace steady
