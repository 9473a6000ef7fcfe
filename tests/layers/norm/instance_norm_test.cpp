#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/layers/norm/group_norm.hpp>
#include <steadygrad/layers/norm/instance_norm.hpp>

#include "tests/layers/norm/norm_testing.hpp"

namespace steady {
namespace {

using namespace norm_testing;
using testing::ElementsAre;

TEST(InstanceNorm, IsGroupNormWithAGroupPerChannel) {
  const Tensor x = noise({2, 3, 4, 5}, "x", 1), w = noise({5}, "w"), b = noise({5}, "b");
  EXPECT_TRUE(same_bits(instance_norm(x, w, b, 0.1).y, group_norm(x, 5, w, b, 0.1)));
}

TEST(InstanceNorm, IsBatchNormOfEverySample) {
  const Tensor x = noise({3, 7, 4}, "x", 2);
  const std::vector<double> y = values(instance_norm(x).y);
  for (std::int64_t n = 0; n < 3; ++n) {
    const std::vector<double> one = values(batch_norm(slice(x, 0, n, n + 1)).y);
    for (std::size_t i = 0; i < one.size(); ++i) {
      EXPECT_NEAR(y[std::size_t(n) * one.size() + i], one[i], 1e-13);
    }
  }
}

TEST(InstanceNorm, RunningStatisticsAverageThoseOfTheSamples) {
  InstanceNorm norm({.features = 1, .track_running_stats = true, .momentum = 0.5});
  norm.to(Dtype::F64);
  // Means 1 and 5, unbiased variances 2 and 8; over both samples together they would be 3 and 8.67.
  (void)norm(Tensor::of({2, 2, 1}, {0, 2, 3, 7}, Dtype::F64));
  EXPECT_THAT(values(norm.running_mean), ElementsAre(1.5));
  EXPECT_THAT(values(norm.running_var), ElementsAre(3));
  EXPECT_EQ(norm.num_batches_tracked.data<std::int64_t>()[0], 0);
}

TEST(InstanceNorm, HasNeitherParametersNorBuffersByDefault) {
  const InstanceNorm norm({.features = 4});
  EXPECT_TRUE(norm.state().empty());
  EXPECT_EQ(norm.statistics(), "");
  EXPECT_EQ(norm.describe(), "InstanceNorm(4, eps=1e-05, no running statistics, affine=false)");
  std::vector<std::string> names;
  for (const NamedTensor& t :
       InstanceNorm({.features = 4, .affine = true, .track_running_stats = true}).state()) {
    names.push_back(t.name);
  }
  EXPECT_THAT(names,
              ElementsAre("weight", "bias", "running_mean", "running_var", "num_batches_tracked"));
}

TEST(InstanceNorm, RefusesASinglePositionAndBadOptions) {
  EXPECT_THROW((void)instance_norm(noise({3, 1, 4}, "x")), ShapeError);
  EXPECT_THROW((void)instance_norm(noise({3, 4}, "x")), ShapeError);
  EXPECT_THROW((void)instance_norm(noise({3, 2, 4}, "x"), noise({3}, "w")), ShapeError);
  EXPECT_THROW(InstanceNorm({.features = 0}), Error);
  EXPECT_THROW(InstanceNorm({.features = 2, .eps = -1}), Error);
  EXPECT_THROW(InstanceNorm({.features = 2, .momentum = 1.5}), Error);
}

TEST(InstanceNorm, ACopyIsIndependent) {
  InstanceNorm norm({.features = 3, .affine = true, .track_running_stats = true});
  norm.to(Dtype::F64);
  const auto copy = clone(norm);
  (void)norm(noise({2, 4, 3}, "x", 5));
  EXPECT_THAT(values(copy->running_mean), ElementsAre(0, 0, 0));
}

}  // namespace
}  // namespace steady
