#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/gradcheck.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/layers/norm/batch_renorm.hpp>

#include "tests/layers/norm/norm_testing.hpp"

namespace steady {
namespace {

using namespace norm_testing;
using testing::ElementsAre;

const Tensor Mean = Tensor::of({2}, {0.5, -1}, Dtype::F64);
const Tensor Var = Tensor::of({2}, {4, 0.25}, Dtype::F64);

TEST(BatchRenorm, UnclippedItIsWhatEvalModeGives) {
  const Tensor x = noise({6, 3, 2}, "x", 1), w = noise({2}, "w"), b = noise({2}, "b");
  const BatchRenormResult result =
      batch_renorm(x, Mean, Var, {.rmax = 100, .dmax = 100}, w, b, 0.1);
  expect_values(result.y, values(batch_norm_eval(x, Mean, Var, w, b, 0.1)), 1e-13);
}

TEST(BatchRenorm, FullyClippedItIsBatchNorm) {
  const Tensor x = noise({6, 3, 2}, "x", 1), w = noise({2}, "w"), b = noise({2}, "b");
  const BatchRenormResult result = batch_renorm(x, Mean, Var, {.rmax = 1, .dmax = 0}, w, b);
  EXPECT_THAT(values(result.r), ElementsAre(1, 1));
  EXPECT_THAT(values(result.d), ElementsAre(0, 0));
  expect_values(result.y, values(batch_norm(x, w, b).y), 1e-14);
}

TEST(BatchRenorm, ClipsToTheLimitsOnBothSides) {
  // Batch means 10 and -10, deviations 1 and 4; running deviations 2 and 0.5.
  const Tensor x = Tensor::of({2, 2}, {9, -14, 11, -6}, Dtype::F64);
  const BatchRenormResult free = batch_renorm(x, Mean, Var, {.rmax = 50, .dmax = 50}, {}, {}, 0);
  expect_values(free.r, {0.5, 8}, 1e-14);
  expect_values(free.d, {4.75, -18}, 1e-14);
  const BatchRenormResult clipped = batch_renorm(x, Mean, Var, {.rmax = 1.5, .dmax = 3}, {}, {}, 0);
  expect_values(clipped.r, {1 / 1.5, 1.5}, 1e-14);
  expect_values(clipped.d, {3, -3}, 1e-14);
  expect_values(clipped.y, {-1 / 1.5 + 3, -1.5 - 3, 1 / 1.5 + 3, 1.5 - 3}, 1e-14);
}

TEST(BatchRenorm, TheCorrectionsAreConstantsInBothOrders) {
  const Tensor x = noise({4, 2}, "x", 1).set_requires_grad(), dy = noise({4, 2}, "dy");
  const Tensor w = noise({2}, "w").set_requires_grad(), b = noise({2}, "b").set_requires_grad();
  const BatchRenormResult plain = batch_renorm(x.detach(), Mean, Var, {});
  const auto with_constants = [&](std::span<const Tensor> in) {
    return batch_norm(in[0], mul(in[1], plain.r), add(mul(in[1], plain.d), in[2])).y;
  };
  const std::vector<Tensor> inputs{x, w, b};
  EXPECT_TRUE(gradcheck(with_constants, inputs, {.tolerance = 1e-8}).ok);
  EXPECT_TRUE(gradcheck_second(with_constants, inputs, {.tolerance = 1e-6}).ok);
  const Gradients a = gradients([&] { return batch_renorm(x, Mean, Var, {}, w, b).y; }, dy);
  const Gradients c = gradients([&] { return with_constants(inputs); }, dy);
  for (const Tensor& t : inputs) EXPECT_TRUE(same_bits(a[t], c[t]));
}

TEST(BatchRenorm, CorrectsByTheStatisticsBeforeThisBatch) {
  BatchRenorm norm({.features = 2, .momentum = 0.5});
  norm.to(Dtype::F64);
  const Tensor mean = norm.running_mean.detached_copy(), var = norm.running_var.detached_copy();
  const Tensor x = noise({6, 2}, "x", 1);
  const Tensor y = norm(x);
  EXPECT_TRUE(same_bits(y, batch_renorm(x, mean, var, norm.limits, norm.weight, norm.bias).y));
  BatchNorm batch({.features = 2, .momentum = 0.5});
  batch.to(Dtype::F64);
  (void)batch(x);
  EXPECT_TRUE(same_bits(norm.running_mean, batch.running_mean));
  EXPECT_TRUE(same_bits(norm.running_var, batch.running_var));
  EXPECT_EQ(norm.num_batches_tracked.data<std::int64_t>()[0], 1);
}

TEST(BatchRenorm, TheLimitsAreTheUsersToSchedule) {
  BatchRenorm norm({.features = 2, .rmax = 1, .dmax = 0});
  norm.to(Dtype::F64);
  const Tensor x = noise({6, 2}, "x", 5);
  const Tensor before = norm(x);
  norm.limits = {.rmax = 3, .dmax = 5};
  EXPECT_FALSE(same_bits(norm(x), before));
  EXPECT_EQ(norm.describe(),
            "BatchRenorm(2, eps=1e-05, new batch weighs momentum=0.1, rmax=3, dmax=5)");
  EXPECT_EQ(clone(norm)->limits.rmax, 3);
  norm.limits.rmax = 0.5;
  EXPECT_THROW((void)norm(x), Error);
}

TEST(BatchRenorm, TakesTheStateOfABatchNorm) {
  BatchNorm batch({.features = 2});
  (void)batch(noise({6, 2}, "x", 5).detached_copy(Dtype::F32));
  BatchRenorm norm({.features = 2});
  EXPECT_TRUE(norm.load(batch.state()).clean());
  EXPECT_TRUE(same_bits(norm.running_var, batch.running_var));
}

TEST(BatchRenorm, RefusesBadOptionsAndParameters) {
  const Tensor x = noise({4, 2}, "x");
  EXPECT_THROW(BatchRenorm({.features = 0}), Error);
  EXPECT_THROW(BatchRenorm({.features = 2, .eps = -1}), Error);
  EXPECT_THROW(BatchRenorm({.features = 2, .momentum = 2}), Error);
  EXPECT_THROW(BatchRenorm({.features = 2, .rmax = 0.9}), Error);
  EXPECT_THROW(BatchRenorm({.features = 2, .dmax = -1}), Error);
  EXPECT_THROW((void)batch_renorm(x, noise({3}, "m"), Var, {}), ShapeError);
  EXPECT_THROW((void)batch_renorm(x, Mean, Tensor(), {}), ShapeError);
  EXPECT_THROW((void)batch_renorm(x, Mean, Var, {}, noise({1}, "w")), ShapeError);
}

}  // namespace
}  // namespace steady
