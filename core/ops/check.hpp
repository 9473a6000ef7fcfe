#pragma once

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/tensor.hpp>

namespace steady::detail {

/// Throws ShapeError unless the tensor is defined and floating.
inline void check_float(const char* op, const char* name, const Tensor& tensor) {
  check_defined(op, name, tensor);
  STEADY_CHECK(ShapeError, is_float(tensor.dtype()), "{}: {} must be f32 or f64; got {}", op, name,
               describe(tensor));
}

}  // namespace steady::detail
