#pragma once

#include <steadygrad/core/tensor.hpp>

namespace steady {

/// A sum and its norm, made in one pass.
struct SumAndNorm {
  Tensor sum;
  Tensor norm;
};

}  // namespace steady
