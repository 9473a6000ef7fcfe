#include <steadygrad/layers/sequential.hpp>

#include <steadygrad/core/error.hpp>

namespace steady {

Tensor Sequential::forward(const Tensor& x) {
  Tensor h = x;
  for (Module* child : children()) {
    auto* layer = dynamic_cast<Layer*>(child);
    STEADY_CHECK(Error, layer != nullptr, "Sequential: child '{}' ({}) is not a layer",
                 child->name(), child->describe());
    h = (*layer)(h);
  }
  return h;
}

}  // namespace steady
