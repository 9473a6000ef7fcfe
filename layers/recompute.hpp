#pragma once

#include <span>
#include <steadygrad/layers/layer.hpp>
#include <vector>

namespace steady {

/// layer(x), of which backward keeps x alone: it runs the layer again to know the rest. A stack of
/// L such blocks holds L inputs and the inside of one block, for one more forward of each
/// [Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"].
///
///   for (Block* block : blocks) x = recompute(*block, x);
///
/// Gradients have the bits of the plain call: the second forward sees the same parameters, modes,
/// buffers and random numbers as the first, and changes none of them. A parameter that is used
/// inside and outside gets the sums of both added, in that order.
///
/// Without a tape that records this is the plain call, and so it is while a layer in it is
/// observed. The layer must live, in the same mode and with the same parameters, until backward has
/// passed: throws Error there otherwise. Second derivatives are refused: what they need is not
/// kept.
[[nodiscard]] Tensor recompute(Layer& layer, const Tensor& x);

/// What a block computes of several tensors: the function is called again in backward, so it must
/// read nothing but the layer and its inputs, some of which may be undefined.
using BlockFunction = std::vector<Tensor> (*)(Layer& layer, std::span<const Tensor> inputs);
/// The same for a block of several inputs and outputs; throws what `function` throws.
[[nodiscard]] std::vector<Tensor> recompute(Layer& layer, std::span<const Tensor> inputs,
                                            BlockFunction function);

}  // namespace steady
