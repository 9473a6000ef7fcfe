#pragma once

#include <cstdint>
#include <span>
#include <steadygrad/core/kernels/convolution.hpp>
#include <steadygrad/core/kernels/gemm.hpp>

/// The library side of convolution and matrix product; onednn.cpp is the only file that sees
/// oneDNN. Everything here runs on the calling thread alone.
namespace steady::kernels {

/// C = alpha * op(A) * op(B) + beta * C, all leading dimensions given, sizes > 0.
void onednn_sgemm(const GemmShape& shape, float alpha, const float* a, const float* b, float beta,
                  float* c);

/// Whether oneDNN is the faster of the two libraries for one tile of this shape.
[[nodiscard]] bool onednn_prefers_sgemm(const GemmShape& shape);

}  // namespace steady::kernels
