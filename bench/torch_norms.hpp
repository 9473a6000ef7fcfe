#pragma once

#include <cstdint>
#include <functional>

// The norms of libtorch over arrays of the benchmark, behind a header without libtorch's. Each
// function returns one call, forward or backward, as a user makes it: outputs are libtorch's own,
// allocated in the call. All arrays are float32 and outlive the call.

namespace steady::bench {

/// x, dy: [rows, width]; gamma, beta: [width].
struct RowInput {
  float *x, *dy, *gamma, *beta;
  std::int64_t rows, width;
};

/// x, dy: [images, channels, size, size], or [images, channels] for size 0; gamma, beta:
/// [channels]. `last`: the memory format channels_last, else contiguous.
struct ImageInput {
  float *x, *dy, *gamma, *beta;
  std::int64_t images, channels, size;
  bool last = false;
};

/// Threads of all later calls.
void torch_threads(int n);

[[nodiscard]] std::function<void()> torch_layer_norm(const RowInput& in, bool backward);
/// From primitive operations; backward through autograd, the graph kept from one forward.
[[nodiscard]] std::function<void()> torch_rms_norm(const RowInput& in, bool backward);
[[nodiscard]] std::function<void()> torch_softmax(const RowInput& in, bool backward);
[[nodiscard]] std::function<void()> torch_batch_norm(const ImageInput& in, bool backward);
[[nodiscard]] std::function<void()> torch_group_norm(const ImageInput& in, std::int64_t groups,
                                                     bool backward);

}  // namespace steady::bench
