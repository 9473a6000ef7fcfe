#pragma once

#include <steadygrad/core/gradcheck.hpp>
#include <steadygrad/layers/layer.hpp>
#include <vector>

namespace steady {

/// A layer as a function of its input and its parameters, in the form that gradcheck takes:
///
///   MyNorm norm({.features = 4});
///   norm.to(Dtype::F64);
///   auto [f, inputs] = as_function(norm, x);
///   GradcheckResult first = gradcheck(f, inputs), second = gradcheck_second(f, inputs);
struct LayerFunction {
  TensorFunction f;            ///< layer(inputs[0]) with inputs[1..] in place of its parameters
  std::vector<Tensor> inputs;  ///< x, then the parameters; copies that require a gradient
};

/// The function calls `layer`, which must outlive it and has its own parameters back after every
/// call. The inputs are x and what layer.parameters() lists, in its order and as it stands now; a
/// tied parameter is one input. x is a leaf of its own whether it required a gradient or not.
/// Throws Error when a parameter has no values yet.
[[nodiscard]] LayerFunction as_function(Layer& layer, const Tensor& x);

}  // namespace steady
