#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <steadygrad/core/tensor.hpp>
#include <string>
#include <vector>

namespace steady {

/// A function from tensors to one tensor, made of recorded operations and free of side effects.
using TensorFunction = std::function<Tensor(std::span<const Tensor> inputs)>;

/// Options of gradcheck and gradcheck_second.
struct GradcheckOptions {
  double step = 1e-3;       ///< of the five-point difference, relative to max(1, |x|)
  double tolerance = 1e-7;  ///< largest error allowed, relative to max(1, largest |gradient|)
  std::uint64_t seed = 0;   ///< of the random cotangent
};

/// What a gradient check found.
struct GradcheckResult {
  bool ok = false;
  double error = 0.0;  ///< largest |analytic - numeric| / max(1, largest |numeric| of that input)
  std::string message{};  ///< on failure: input, element, both values, error
};

/// Compares the tape's gradient of sum(c * f(inputs)), c a fixed random cotangent, with five-point
/// central differences for every element of every input that requires a gradient. Checks also that
/// two backwards give the same bits, and that f changes no input. Holds a NoStateUpdate: running
/// statistics keep their bits. Everything is float64: throws
/// ShapeError for other floating inputs (at 1e-6 steps float32 has no digits left to compare).
[[nodiscard]] GradcheckResult gradcheck(const TensorFunction& f, std::vector<Tensor> inputs,
                                        const GradcheckOptions& options = {});

/// The same for second derivatives: differentiates sum_k(p_k * d sum(c * f)/d input_k), with fixed
/// random p, by every input and by c, through a recorded backward.
[[nodiscard]] GradcheckResult gradcheck_second(const TensorFunction& f, std::vector<Tensor> inputs,
                                               const GradcheckOptions& options = {});

}  // namespace steady
