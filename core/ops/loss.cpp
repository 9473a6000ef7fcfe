#include <steadygrad/core/ops/loss.hpp>

#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/check.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady {
namespace {

void check_pair(const char* op, const char* name, const Tensor& x, const Tensor& target) {
  detail::check_float(op, name, x);
  check_defined(op, "target", target);
  check_same_dtype(op, x, target);
  STEADY_CHECK(ShapeError, x.shape() == target.shape(),
               "{}: shapes must be equal, losses do not broadcast; got {} {}, target {}", op, name,
               describe(x), describe(target));
}

Tensor reduced(const char* op, const Tensor& losses, Reduction reduction) {
  switch (reduction) {
    case Reduction::Mean:
      return mean(losses);
    case Reduction::Sum:
      return sum(losses);
    case Reduction::None:
      return losses;
  }
  throw Error(fmt::format("{}: unknown reduction {}", op, static_cast<int>(reduction)));
}

void check_mean(const char* op, const Tensor& x, Reduction reduction) {
  STEADY_CHECK(ShapeError, reduction != Reduction::Mean || x.numel() > 0,
               "{}: the mean of no elements is undefined; got {}", op, describe(x));
}

/// Throws unless `factor` is undefined or repeats to the shape of x.
void check_factor(const char* name, const Tensor& factor, const Tensor& x) {
  if (!factor.defined()) return;
  check_same_dtype("bce_with_logits", x, factor);
  STEADY_CHECK(ShapeError,
               broadcast_shapes(factor.shape(), x.shape(), "bce_with_logits") == x.shape(),
               "bce_with_logits: {} must broadcast to the logits; got {} {}, logits {}", name, name,
               describe(factor), describe(x));
}

}  // namespace

Tensor mse(const Tensor& prediction, const Tensor& target, Reduction reduction) {
  check_pair("mse", "prediction", prediction, target);
  check_mean("mse", prediction, reduction);
  return reduced("mse", square(prediction - target), reduction);
}

Tensor bce_with_logits(const Tensor& logits, const Tensor& target, const BceOptions& options) {
  check_pair("bce_with_logits", "logits", logits, target);
  check_mean("bce_with_logits", logits, options.reduction);
  check_factor("pos_weight", options.pos_weight, logits);
  check_factor("weight", options.weight, logits);
  constexpr double NoThreshold = std::numeric_limits<double>::infinity();
  // -log(sigmoid(x)) = softplus(-x) and -log(sigmoid(-x)) = softplus(x): a sum of terms >= 0.
  Tensor positive = target * softplus(-logits, 1.0, NoThreshold);
  if (options.pos_weight.defined()) positive = options.pos_weight * positive;
  Tensor losses = positive + (1.0 - target) * softplus(logits, 1.0, NoThreshold);
  if (options.weight.defined()) losses = options.weight * losses;
  return reduced("bce_with_logits", losses, options.reduction);
}

}  // namespace steady
