#pragma once

#include <functional>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/module.hpp>

namespace steady {

/// A module with one tensor in and one out. Derived classes override forward; callers use the call
/// operator, which is where paths are kept, errors get the layer's path, and a layer that runs
/// inside another without being registered in it is found out.
class Layer : public Module {
 public:
  /// Runs forward. Throws Error when a parameter has no values yet, or when this layer is called by
  /// another one without being part of a model: its parameters would silently not be trained.
  Tensor operator()(const Tensor& x);

  virtual Tensor forward(const Tensor& x) = 0;

 protected:
  /// What the call operator does around forward, around another function of x: for layers whose
  /// calls take more than one tensor. Throws as the call operator.
  Tensor run(const Tensor& x, const std::function<Tensor(const Tensor&)>& function);
};

}  // namespace steady
