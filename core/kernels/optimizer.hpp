#pragma once

#include <span>

namespace steady::kernels {

/// One update of stochastic gradient descent, PyTorch's form:
///   g' = g + weight_decay p;   buf = g' on the first step, else momentum buf + (1 - dampening) g'
///   p -= lr (nesterov ? g' + momentum buf : buf);   without momentum p -= lr g'
struct SgdStep {
  double lr = 0;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool first = false;  ///< buf holds nothing yet: it is written, not read
};

/// p, g: one length; buf too, or empty when momentum is 0. One pass; T float or double.
template <class T>
void sgd_update(const SgdStep& step, std::span<T> p, std::span<T> buf, std::span<const T> g);

}  // namespace steady::kernels
