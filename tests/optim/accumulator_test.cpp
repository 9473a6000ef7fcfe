#include <steadygrad/optim/accumulator.hpp>

#include <gtest/gtest.h>

#include <limits>
#include <span>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/loss.hpp>
#include <steadygrad/core/ops/matmul.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/optim/sgd.hpp>
#include <vector>

#include "tests/optim/leaves.hpp"
#include "tests/support/golden.hpp"

namespace steady {
namespace {

using testing_support::expect_close;
using testing_support::leaf;
using testing_support::one_gradient;

Tensor random_tensor(const Shape& shape, const char* name) {
  Random random(5, name);
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (double& v : values) v = random.normal();
  return Tensor::from<double>(shape, std::span<const double>(values));
}

/// A linear classifier on rows first .. first + count of a batch of 12 tokens.
struct Classifier {
  Tensor x = random_tensor({12, 5}, "x");
  Tensor w = random_tensor({5, 4}, "w").set_requires_grad();

  Tensor loss(std::int64_t first, std::int64_t count, Reduction reduction) const {
    std::vector<std::int64_t> targets;
    for (std::int64_t i = first; i < first + count; ++i) targets.push_back(i * i % 4);
    const auto rows = x.data<double>().subspan(static_cast<std::size_t>(5 * first),
                                               static_cast<std::size_t>(5 * count));
    const Tensor y = Tensor::from<std::int64_t>({count}, std::span<const std::int64_t>(targets));
    return cross_entropy(matmul(Tensor::from<double>({count, 5}, rows), w), y,
                         {.reduction = reduction});
  }
};

TEST(Accumulator, UnequalMicroBatchesEqualTheJoinedBatch) {  // CASES AG-10
  const Classifier model;
  Tape joined_tape;
  const Tensor joined_loss = model.loss(0, 12, Reduction::Mean);
  const double want = joined_loss.item();
  const Gradients joined = joined_tape.backward(joined_loss);
  for (const Reduction reduction : {Reduction::Mean, Reduction::Sum}) {
    Accumulator window;
    std::int64_t first = 0;
    for (const std::int64_t count : {1, 7, 4}) {
      Tape tape;
      const Tensor loss = model.loss(first, count, reduction);
      const double value = loss.item();
      if (reduction == Reduction::Mean) {
        window.add_mean(tape.backward(loss), count, value);
      } else {
        window.add_sum(tape.backward(loss), count, value);
      }
      first += count;
    }
    EXPECT_EQ(window.count(), 12);
    EXPECT_NEAR(window.mean_loss(), want, 1e-15);
    expect_close(window.take_average()[model.w], joined[model.w], 1e-15);
  }
}

TEST(Accumulator, WeighsTokensNotMicroBatches) {  // CASES AG-10
  const Tensor w = leaf({0});
  Accumulator window;
  window.add_mean(one_gradient(w, {2}), 1, 2.0);
  window.add_mean(one_gradient(w, {1}), 3, 1.0);
  EXPECT_EQ(window.mean_loss(), 1.25);
  EXPECT_EQ(window.take_average()[w].item(), 1.25);
}

TEST(Accumulator, NothingReachesTheNextWindow) {  // CASES AG-11
  const Tensor w = leaf({0});
  Sgd sgd({{"w", w, Role::Weight}}, {.lr = 1});
  Accumulator window;
  double expected = 0;
  for (int micro = 0; micro < 10; ++micro) {
    window.add_mean(one_gradient(w, {static_cast<double>(micro)}), 5, micro);
    if (micro % 4 != 3 && micro != 9) continue;
    const double mean = micro == 9 ? 8.5 : micro - 1.5;
    EXPECT_EQ(window.mean_loss(), mean);
    sgd.step(window.take_average());
    expected -= mean;
    EXPECT_EQ(window.count(), 0);
  }
  EXPECT_EQ(sgd.updates(), 3);
  EXPECT_DOUBLE_EQ(w.item(), expected);
}

TEST(Accumulator, AMicroBatchWithoutTermsChangesNothing) {
  const Tensor w = leaf({0});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Accumulator window;
  window.add_mean(one_gradient(w, {nan}), 0, nan);
  EXPECT_TRUE(window.take_average().empty());
  EXPECT_THROW((void)window.mean_loss(), Error);
  window.add_mean(one_gradient(w, {3}), 2, 1.0);
  window.add_sum(one_gradient(w, {nan}), 0, nan);
  EXPECT_EQ(window.mean_loss(), 1.0);
  EXPECT_EQ(window.take_average()[w].item(), 3);
  EXPECT_THROW(window.add_mean(one_gradient(w, {3}), -1), Error);
  EXPECT_THROW(window.add_sum(one_gradient(w, {3}), -1), Error);
}

}  // namespace
}  // namespace steady
