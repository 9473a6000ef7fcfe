#include <steadygrad/layers/layer_function.hpp>

#include <steadygrad/core/error.hpp>

namespace steady {
LayerFunction as_function(Layer& layer, const Tensor& x) {
  std::vector<std::vector<Tensor*>> places = parameter_places(layer);
  LayerFunction result;
  result.inputs.push_back(x.detached_copy().set_requires_grad());
  for (const std::vector<Tensor*>& tied : places) {
    result.inputs.push_back(tied.front()->detached_copy().set_requires_grad());
  }
  result.f = [&layer, places = std::move(places)](std::span<const Tensor> in) {
    STEADY_CHECK(Error, in.size() == places.size() + 1,
                 "as_function: the layer has {} parameters; got {} inputs", places.size(),
                 in.size());
    const ParameterExchange exchange(places, in.subspan(1));
    return layer(in[0]);
  };
  return result;
}

}  // namespace steady
