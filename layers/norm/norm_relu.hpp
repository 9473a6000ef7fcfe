#pragma once

#include <steadygrad/layers/layer.hpp>

namespace steady {

/// relu(norm(x)), to the bit (backward: for gradients that are finite). In one pass forward and one
/// less backward where the norm is a BatchNorm and nobody observes its result on the way; a norm of
/// any other kind, or a class derived from BatchNorm, is called and followed by relu(). Throws what
/// the norm throws.
[[nodiscard]] Tensor norm_relu(Layer& norm, const Tensor& x);

}  // namespace steady
