#pragma once

#include <initializer_list>
#include <steadygrad/core/gradients.hpp>
#include <steadygrad/core/tensor.hpp>

namespace steady::testing_support {

inline Tensor leaf(std::initializer_list<double> values, Dtype dtype = Dtype::F64) {
  return Tensor::of({static_cast<std::int64_t>(values.size())}, values, dtype).set_requires_grad();
}

inline Gradients one_gradient(const Tensor& leaf, std::initializer_list<double> values) {
  Gradients g;
  g.insert(leaf, Tensor::of(leaf.shape(), values, leaf.dtype()));
  return g;
}

}  // namespace steady::testing_support
