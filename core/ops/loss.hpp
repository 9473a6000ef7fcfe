#pragma once

#include <cstdint>
#include <steadygrad/core/tensor.hpp>

namespace steady {

/// What becomes of the losses of the single elements.
enum class Reduction : std::uint8_t { Mean, Sum, None };

/// Options of cross_entropy.
struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;  ///< rows with this target count nowhere; need not be a class
  double label_smoothing = 0;        ///< in [0, 1]
  Tensor class_weight = {};          ///< [C], dtype of the logits, or undefined: all 1
  Reduction reduction = Reduction::Mean;
};

/// A loss and what it was made of. To join batches of unequal size, weight each mean by `weight`.
struct CrossEntropyResult {
  Tensor loss;            ///< scalar, or the shape of the target with Reduction::None
  double weight = 0;      ///< sum of class_weight[target] over the used rows: the mean's divisor
  std::int64_t used = 0;  ///< rows that are not ignored
};

/// Cross entropy of a softmax over the last axis, per row with s = label_smoothing:
///   loss = (1 - s) w[t] (-log p[t]) + s / C * sum_c w[c] (-log p[c])      [Szegedy et al. 2016]
/// logits: [..., C], f32 or f64; target: [...], i64. Mean divides the sum, also its smoothing part,
/// by the sum of w[t] over the rows that are not ignored. When that is 0 (every row ignored) loss
/// and gradient are exactly 0; PyTorch gives NaN. First and second derivatives with respect to the
/// logits. No probabilities are kept: backward makes them from the logits and the log-sum-exp of
/// each row, in the logits' own memory when no other tensor shares it (pass them on without keeping
/// a name). Throws ShapeError for shapes and dtypes, Error for a target that is neither a class nor
/// ignore_index (naming row and value), for label_smoothing outside [0, 1], and for class weights
/// that require a gradient.
[[nodiscard]] Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                                   const CrossEntropyOptions& options = {});
/// The same with the counts.
[[nodiscard]] CrossEntropyResult cross_entropy_with_count(const Tensor& logits,
                                                          const Tensor& target,
                                                          const CrossEntropyOptions& options = {});

/// (prediction - target)^2, reduced. Both of one shape (no broadcasting) and one floating dtype;
/// differentiable to any order by both. The mean of nothing is refused. Throws ShapeError.
[[nodiscard]] Tensor mse(const Tensor& prediction, const Tensor& target,
                         Reduction reduction = Reduction::Mean);

/// Options of bce_with_logits. Both tensors broadcast to the logits and have their dtype.
struct BceOptions {
  Tensor pos_weight = {};  ///< factor of the positive part, e.g. [classes]; undefined: 1
  Tensor weight = {};      ///< factor of each element's loss; undefined: 1
  Reduction reduction = Reduction::Mean;
};

/// Binary cross entropy of sigmoid(x) in a form that neither overflows nor cancels:
///   loss = weight * (-pos_weight * t * log(sigmoid(x)) - (1 - t) * log(sigmoid(-x)))
/// logits x, target t: one shape (no broadcasting) and one floating dtype, t in [0, 1] by contract.
/// Mean divides by the number of elements. Differentiable to any order. Throws ShapeError.
[[nodiscard]] Tensor bce_with_logits(const Tensor& logits, const Tensor& target,
                                     const BceOptions& options = {});

}  // namespace steady
