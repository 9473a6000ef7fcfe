#pragma once

#include <cstdint>

// What memory allows: the floors that kernels are measured against. They run on as many threads as
// the library may use and on the SIMD target that its kernels use.

namespace steady::bench {

/// out = in. `stream`: with stores that go past the caches (non-temporal), else with plain ones.
/// in, out: n floats, aligned to 64 bytes.
void floor_copy(const float* in, float* out, std::int64_t n, bool stream);

/// out = a + b / 2.
void floor_triad(const float* a, const float* b, float* out, std::int64_t n, bool stream);

/// The same for a kernel that must have seen all of its input before it writes, as BatchNorm: reads
/// a (and b, unless null), then copies or computes the triad, what was read last first.
void floor_two_passes(const float* a, const float* b, float* out, std::int64_t n, bool stream);

}  // namespace steady::bench
