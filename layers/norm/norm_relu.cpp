#include <steadygrad/layers/norm/norm_relu.hpp>

#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/pool.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <typeinfo>

namespace steady {
namespace {

/// The norm, if it can take over what follows it.
BatchNorm* fusible(Layer& norm) {
  const bool plain = !norm.observed() && typeid(norm) == typeid(BatchNorm);
  return plain ? &static_cast<BatchNorm&>(norm) : nullptr;
}

}  // namespace

Tensor norm_relu(Layer& norm, const Tensor& x) {
  BatchNorm* const batch_norm = fusible(norm);
  return batch_norm != nullptr ? batch_norm->with_relu(x) : relu(norm(x));
}

Tensor norm_relu_pool(Layer& norm, const Tensor& x, std::int64_t kernel) {
  BatchNorm* const batch_norm = fusible(norm);
  return batch_norm != nullptr ? batch_norm->with_relu_and_pool(x, kernel)
                               : max_pool2d(relu(norm(x)), kernel);
}

}  // namespace steady
