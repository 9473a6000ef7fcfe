#pragma once

#include <cstdint>
#include <steadygrad/core/tensor.hpp>
#include <string_view>

namespace steady {

/// y = x * m / (1 - p), m independent and 1 with probability 1 - p, else 0 [Srivastava et al.
/// 2014]. x, y: one shape, f32 or f64. The mask is a function of (seed, stream, call) and the
/// element's position: the same for any thread count, and again when recomputed; it is never
/// stored. `call` numbers the uses of one stream (below 2^28). p = 0 keeps every value, p = 1 gives
/// zeros. Differentiable to any order (the same mask is applied to the gradient). Throws Error for
/// p outside [0, 1] and ShapeError for integers.
[[nodiscard]] Tensor dropout(const Tensor& x, double p, std::uint64_t seed, std::string_view stream,
                             std::uint64_t call = 0);

}  // namespace steady
