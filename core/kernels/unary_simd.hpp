#pragma once

#include <cstdint>
#include <steadygrad/core/kernels/elementwise.hpp>

namespace steady::kernels {

/// What unary and unary_backward do with one chunk of n floats, on the best SIMD target. Pow is
/// not among them.
void unary_simd(Unary op, const float* x, float* y, std::int64_t n, float p0, float p1);
void unary_backward_simd(Unary op, const float* dy, const float* saved, float* dx, std::int64_t n,
                         float p0, float p1);

}  // namespace steady::kernels
