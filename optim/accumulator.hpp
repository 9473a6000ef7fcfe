#pragma once

#include <cstdint>
#include <steadygrad/core/gradients.hpp>

namespace steady {

/// Gradients of one update gathered from several micro-batches, equal to that of the joined batch:
///   average = (sum of the gradients of summed losses) / (number of terms in all of them)
/// however unequal the micro-batches are. A mean of means would weigh a short one too much.
///
///   Accumulator window;
///   for (const Batch& micro : micros) {
///     Tape tape;
///     const Tensor loss = cross_entropy(model(micro.x), micro.y);     // the mean over its tokens
///     window.add_mean(tape.backward(loss), micro.y.numel(), loss.item());
///   }
///   const double loss = window.mean_loss();
///   optimizer.step(window.take_average());
class Accumulator {
 public:
  /// The gradients of a mean over `count` terms, and that mean for mean_loss(). A mean over nothing
  /// (count 0, where they are NaN) leaves the window as it is. Throws Error for a negative count.
  void add_mean(Gradients gradients, std::int64_t count, double loss = 0.0);
  /// The gradients of a sum over `count` terms, and that sum.
  void add_sum(Gradients gradients, std::int64_t count, double loss = 0.0);

  /// Terms in the window so far.
  [[nodiscard]] std::int64_t count() const { return count_; }
  /// Mean of the losses given, over all terms. Throws Error for a window without terms.
  [[nodiscard]] double mean_loss() const;
  /// The sum of all gradients over the number of all terms. The window is empty afterwards: nothing
  /// reaches the next one. No gradients at all when there was no term.
  [[nodiscard]] Gradients take_average();

 private:
  Gradients sum_;
  std::int64_t count_ = 0;
  double loss_ = 0.0;
};

}  // namespace steady
