#pragma once

#include <cstdint>
#include <span>

namespace steady::kernels {

/// Options of the cross entropy of one row with logits x, target t and C classes:
///   loss = (1 - s) w[t] (lse - x[t]) + s / C * sum_c w[c] (lse - x[c]),   lse = log(sum(exp(x)))
/// with s = label_smoothing in [0, 1] and w = class_weight (empty: all 1). [Szegedy et al. 2016]
template <class T>
struct CrossEntropy {
  std::int64_t rows = 0;
  std::int64_t classes = 0;
  std::int64_t ignore_index = -100;  ///< a row with this target has loss 0 and gradient 0
  double label_smoothing = 0;
  std::span<const T> class_weight{};  ///< [classes] or empty
};

/// What a mean or a sum is made of. The mean is loss / weight as in PyTorch: also the smoothing
/// part is divided by the class weights of the targets. Both are 0 when no row is used; the caller
/// chooses what 0 / 0 is.
struct CrossEntropySums {
  double loss = 0;
  double weight = 0;      ///< sum of class_weight[target] over the used rows
  std::int64_t used = 0;  ///< rows that are not ignored
};

/// Throws Error naming row, value and number of classes for a target that is neither a class nor
/// ignore_index, and for options out of range or spans of the wrong size. Done by
/// cross_entropy_forward before it writes anything.
template <class T>
void check_cross_entropy(const CrossEntropy<T>& options, std::span<const std::int64_t> target);

/// logits: [rows, classes]; target, loss (unreduced, may be empty), lse: [rows]. lse is kept in
/// double so that backward is exact to float rounding at logits of 1e4.
template <class T>
CrossEntropySums cross_entropy_forward(const CrossEntropy<T>& options, std::span<const T> logits,
                                       std::span<const std::int64_t> target, std::span<T> loss,
                                       std::span<double> lse);

/// dlogits[r, c] = dloss[r] * (p[r, c] A[r] - B[r, c]) with p = exp(logits - lse),
///   A = (1 - s) w[t] + s / C sum(w),   B[c] = (1 - s) w[t] [c == t] + s / C w[c];
/// exactly 0 in ignored rows, whatever dloss and logits hold. dloss: [rows], or one value for all
/// rows (already divided by the weight for a mean). dlogits may be logits.
template <class T>
void cross_entropy_backward(const CrossEntropy<T>& options, std::span<const T> dloss,
                            std::span<const T> logits, std::span<const std::int64_t> target,
                            std::span<const double> lse, std::span<T> dlogits);

/// Derivative of sum(v * dlogits) of cross_entropy_backward:
///   dx[r, c]   = dloss[r] A[r] p[r, c] (v[r, c] - sum_k p[r, k] v[r, k])      wrt logits
///   ddloss[r]  = sum_c v[r, c] (p[r, c] A[r] - B[r, c])                       wrt dloss
/// v, dx: [rows, classes]; ddloss: [rows] always (the caller adds it up if dloss is one value).
template <class T>
void cross_entropy_second(const CrossEntropy<T>& options, std::span<const T> v,
                          std::span<const T> dloss, std::span<const T> logits,
                          std::span<const std::int64_t> target, std::span<const double> lse,
                          std::span<T> dx, std::span<T> ddloss);

}  // namespace steady::kernels
