#include <steadygrad/optim/accumulator.hpp>

#include <steadygrad/core/error.hpp>
#include <utility>

namespace steady {

void Accumulator::add_mean(Gradients gradients, std::int64_t count, double loss) {
  if (count == 0) return;
  const auto terms = static_cast<double>(count);
  if (count > 0) gradients *= terms;
  add_sum(std::move(gradients), count, loss * terms);
}

void Accumulator::add_sum(Gradients gradients, std::int64_t count, double loss) {
  STEADY_CHECK(Error, count >= 0, "accumulator: a count of terms must not be negative; got {}",
               count);
  if (count == 0) return;
  if (sum_.empty()) {
    sum_ = std::move(gradients);
  } else {
    sum_ += gradients;
  }
  count_ += count;
  loss_ += loss;
}

double Accumulator::mean_loss() const {
  STEADY_CHECK(Error, count_ > 0, "accumulator: the window has no terms, so it has no mean loss");
  return loss_ / static_cast<double>(count_);
}

Gradients Accumulator::take_average() {
  Gradients average = std::exchange(sum_, Gradients());
  if (count_ > 0) average *= 1.0 / static_cast<double>(count_);
  count_ = 0;
  loss_ = 0.0;
  return average;
}

}  // namespace steady
