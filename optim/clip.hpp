#pragma once

#include <span>
#include <steadygrad/core/gradients.hpp>
#include <steadygrad/core/parameter.hpp>

namespace steady {

/// Options of clip_grad_norm.
struct ClipNormOptions {
  double max_norm = 1.0;
  double epsilon = 0.0;  ///< added to the norm in the divisor; PyTorch adds 1e-6
};

/// What clipping found and did.
struct ClipReport {
  double norm = 0.0;         ///< before clipping: global 2-norm, or largest |element| for values
  double coefficient = 1.0;  ///< what the gradients were multiplied by (clip_grad_norm)
  bool clipped = false;
};

/// The 2-norm of all gradients of `parameters` together, summed in float64 in their order. Throws
/// NonFiniteError naming the parameter and the number of bad elements when one is not finite, and
/// when the norm overflows.
[[nodiscard]] double grad_norm(const Gradients& gradients, std::span<const Parameter> parameters);

/// Multiplies all gradients by min(1, max_norm / (norm + epsilon)).         [Pascanu et al. 2013]
/// [3, 4] with max_norm 1 becomes [0.6, 0.8] exactly. Throws as grad_norm, and Error for max_norm
/// that is not positive, before anything has changed.
ClipReport clip_grad_norm(Gradients& gradients, std::span<const Parameter> parameters,
                          const ClipNormOptions& options = {});

/// Limits every element to [-max_value, max_value]; throws as clip_grad_norm.
ClipReport clip_grad_value(Gradients& gradients, std::span<const Parameter> parameters,
                           double max_value);

}  // namespace steady
