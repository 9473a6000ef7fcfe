#pragma once

#include <span>

// One update of a parameter p along its gradient g, in one pass over memory. All spans of a call
// have one length; T float or double. The state arrays (buf, m, v, ...) are read and written.
// Elements are independent of each other: any thread count gives the same bits.

namespace steady::kernels {

/// Stochastic gradient descent, PyTorch's form:
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

/// buf may be empty when momentum is 0.
template <class T>
void sgd_update(const SgdStep& step, std::span<T> p, std::span<T> buf, std::span<const T> g);

/// Adam:   g' = g + l2 p;   m = beta1 m + (1 - beta1) g';   v = beta2 v + (1 - beta2) g'^2
///   p = keep p - size m / (root sqrt(v) + eps)
/// with keep = 1 - lr weight_decay for AdamW (1 for Adam), size = lr / (1 - beta1^t),
/// root = 1 / sqrt(1 - beta2^t). With amsgrad v under the root is the largest v so far.
struct AdamStep {
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double l2 = 0;
  double keep = 1;
  double size = 0;
  double root = 1;
};

/// largest: the maxima of v for amsgrad, else empty.
template <class T>
void adam_update(const AdamStep& step, std::span<T> p, std::span<T> m, std::span<T> v,
                 std::span<T> largest, std::span<const T> g);

/// RMSprop:   g' = g + l2 p;   v = alpha v + (1 - alpha) g'^2;   mean = alpha mean + (1 - alpha) g'
///   d = g' / (sqrt(v - mean^2) + eps), without mean (not centered) g' / (sqrt(v) + eps)
///   buf = momentum buf + d;   p -= lr buf;   without buf p -= lr d
/// A difference v - mean^2 that rounding has made negative counts as 0.
struct RmsPropStep {
  double lr = 0;
  double alpha = 0;
  double eps = 0;
  double l2 = 0;
  double momentum = 0;
};

/// mean: empty unless centered; buf: empty without momentum.
template <class T>
void rmsprop_update(const RmsPropStep& step, std::span<T> p, std::span<T> v, std::span<T> mean,
                    std::span<T> buf, std::span<const T> g);

/// Adagrad:   g' = g + l2 p;   sum += g'^2;   p -= lr g' / (sqrt(sum) + eps)
struct AdagradStep {
  double lr = 0;
  double eps = 0;
  double l2 = 0;
};

template <class T>
void adagrad_update(const AdagradStep& step, std::span<T> p, std::span<T> sum,
                    std::span<const T> g);

}  // namespace steady::kernels
