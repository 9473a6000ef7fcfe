#pragma once

#include <steadygrad/core/kernels/gemm.hpp>

namespace steady::kernels {

/// C = alpha * op(A) op(B) + beta * C, or plus `bias` for every row unless that is null, by oneDNN
/// on operands brought into another layout once for all tiles; false, with nothing done, where that
/// does not pay. Every leading dimension of the shape is filled in. For gemm.cpp.
bool prepared_product(const GemmShape& s, float alpha, const float* a, const float* b, float beta,
                      const float* bias, float* c);

}  // namespace steady::kernels
