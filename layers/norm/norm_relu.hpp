#pragma once

#include <cstdint>
#include <steadygrad/layers/layer.hpp>

namespace steady {

/// relu(norm(x)), to the bit (backward: for gradients that are finite). In one pass forward and one
/// less backward where the norm is a BatchNorm and nobody observes its result on the way; a norm of
/// any other kind, or a class derived from BatchNorm, is called and followed by relu(). Throws what
/// the norm throws.
[[nodiscard]] Tensor norm_relu(Layer& norm, const Tensor& x);

/// max_pool2d(norm_relu(norm, x), kernel), to the bit, of images [N, H, W, C]. Where the norm is a
/// BatchNorm with the statistics of this rank's batch that nobody observes, H and W are multiples
/// of the kernel and kernel * W * C <= 32768, the pooling is part of its passes: the array between
/// the two does not exist.
[[nodiscard]] Tensor norm_relu_pool(Layer& norm, const Tensor& x, std::int64_t kernel);

}  // namespace steady
