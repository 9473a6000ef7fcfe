#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/mean_only_batch_norm.hpp>

#include "tests/layers/norm/norm_testing.hpp"

namespace steady {
namespace {

using namespace norm_testing;
using testing::ElementsAre;

TEST(MeanOnlyBatchNorm, TakesTheMeanOfEachChannelAway) {
  MeanOnlyBatchNorm norm({.features = 2, .momentum = 0.5});
  norm.to(Dtype::F64);
  norm.bias.copy_from(Tensor::of({2}, {1, -1}, Dtype::F64));
  const Tensor x = leaf({3, 2}, {1, 10, 2, 20, 6, 60});  // means 3 and 30
  const Tensor dy = Tensor::of({3, 2}, {3, 0, 0, 0, 0, 6}, Dtype::F64);
  Tensor y;
  const Gradients g = gradients([&] { return y = norm(x); }, dy);
  EXPECT_THAT(values(y), ElementsAre(-1, -21, 0, -11, 4, 29));
  EXPECT_THAT(values(g[x]), ElementsAre(2, -2, -1, -2, -1, 4));
  EXPECT_THAT(values(g[norm.bias]), ElementsAre(3, 6));
  EXPECT_THAT(values(norm.running_mean), ElementsAre(1.5, 15));
  norm.eval();
  EXPECT_THAT(values(norm(x)), ElementsAre(0.5, -6, 1.5, 4, 5.5, 44));
}

TEST(MeanOnlyBatchNorm, AMeanOfTenThousandCostsNoDigits) {
  const Tensor x = noise({500, 3, 2}, "x", 1e4).detached_copy(Dtype::F32);
  const std::vector<double> exact = values(center_batch(x.detached_copy(Dtype::F64)).y);
  const std::vector<double> y = values(center_batch(x).y);
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], exact[i], 1e-6);
}

TEST(MeanOnlyBatchNorm, KeepsNoVariance) {
  MeanOnlyBatchNorm norm({.features = 2});
  std::vector<std::string> names;
  for (const NamedTensor& t : norm.state()) names.push_back(t.name);
  EXPECT_THAT(names, ElementsAre("bias", "running_mean", "num_batches_tracked"));
  EXPECT_EQ(norm.describe(), "MeanOnlyBatchNorm(2, new batch weighs momentum=0.1)");
  const MeanOnlyBatchNorm bare({.features = 2, .bias = false, .track_running_stats = false});
  EXPECT_TRUE(bare.state().empty());
  EXPECT_EQ(bare.statistics(), "");
  const auto copy = clone(norm);
  (void)norm(noise({4, 2}, "x", 5).detached_copy(Dtype::F32));
  EXPECT_THAT(values(copy->running_mean), ElementsAre(0, 0));
}

TEST(MeanOnlyBatchNorm, AveragesAllBatchesWithoutMomentum) {
  MeanOnlyBatchNorm norm({.features = 1, .momentum = std::nullopt});
  norm.to(Dtype::F64);
  (void)norm(Tensor::of({2, 1}, {1, 3}, Dtype::F64));
  (void)norm(Tensor::of({2, 1}, {5, 7}, Dtype::F64));
  EXPECT_THAT(values(norm.running_mean), ElementsAre(4));
}

TEST(MeanOnlyBatchNorm, WithoutTrackingEveryModeUsesTheBatch) {
  MeanOnlyBatchNorm norm({.features = 1, .bias = false, .track_running_stats = false});
  norm.to(Dtype::F64);
  norm.eval();
  EXPECT_THAT(values(norm(Tensor::of({2, 1}, {1, 3}, Dtype::F64))), ElementsAre(-1, 1));
}

TEST(MeanOnlyBatchNorm, RefusesBadOptionsAndShapes) {
  EXPECT_THROW(MeanOnlyBatchNorm({.features = 0}), Error);
  EXPECT_THROW(MeanOnlyBatchNorm({.features = 2, .momentum = -0.1}), Error);
  EXPECT_THROW((void)center_batch(noise({2}, "x")), ShapeError);
  EXPECT_THROW((void)center_batch(Tensor()), ShapeError);
}

}  // namespace
}  // namespace steady
