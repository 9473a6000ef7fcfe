#pragma once

#include <memory>
#include <steadygrad/layers/layer.hpp>

#include "examples/study/plan.hpp"

namespace steady::examples {

/// Sizes of the data that a model is made for.
struct ModelSizes {
  std::int64_t features = 0;  ///< of a tabular sample, or channels of an image
  std::int64_t classes = 0;   ///< or characters
  std::int64_t context = 0;   ///< characters of a window
};

/// The model of a cell, not yet initialized. Weights are He normal [He et al. 2015] or the
/// layers' default as `init` says, except in the transformer: normal of deviation 1/sqrt(width).
///   mlp            depth x (linear, norm, relu), then a linear head
///   residual_mlp   linear, depth x (h + relu(norm(linear(h)))), head
///   cnn            depth x (3x3 convolution, norm, relu), 2x2 pooling after a third and two
///   thirds,
///                  global average, head
///   residual_cnn   the same with h + relu(norm(conv(h))) after the first convolution
///   strided_cnn    2x2 average, then five convolutions of strides 2, 2, 2, 2, 1 and widths 1, 1,
///   2,
///                  2, 2 times `width`: the last maps are one pixel
///   transformer    depth blocks of causal attention and Mlp with the norms at `placement`
[[nodiscard]] std::unique_ptr<Layer> make_study_model(const Cell& cell, const ModelSizes& sizes);

}  // namespace steady::examples
