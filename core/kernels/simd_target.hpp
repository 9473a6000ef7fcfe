#pragma once

namespace steady::kernels {

/// The instruction set that the SIMD kernels use on this machine: "AVX2", "AVX3", "NEON", ...
[[nodiscard]] const char* simd_target();

}  // namespace steady::kernels
