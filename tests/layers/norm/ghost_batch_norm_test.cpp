#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/layers/norm/ghost_batch_norm.hpp>

#include "tests/layers/norm/norm_testing.hpp"

namespace steady {
namespace {

using namespace norm_testing;

TEST(GhostBatchNorm, NormalizesEveryVirtualBatchByItself) {
  const Tensor x = noise({5, 3, 2}, "x", 1), w = noise({2}, "w"), b = noise({2}, "b");
  const GhostBatchNormResult result = ghost_batch_norm(x, 2, w, b);
  ASSERT_EQ(result.moments.size(), 3U);
  EXPECT_EQ(result.moments[2][0].n, 3);  // the last one has one sample of three positions
  std::vector<Tensor> parts;
  for (const auto& [start, stop] : {std::pair{0, 2}, {2, 4}, {4, 5}}) {
    parts.push_back(batch_norm(slice(x, 0, start, stop), w, b).y);
  }
  EXPECT_TRUE(same_bits(result.y, concat(parts, 0)));
}

TEST(GhostBatchNorm, UpdatesAsIfTheVirtualBatchesCameOneAfterTheOther) {
  for (const std::optional<double> momentum : {std::optional(0.3), std::optional<double>()}) {
    GhostBatchNorm ghost({.features = 2, .size = 2, .momentum = momentum});
    BatchNorm batch({.features = 2, .momentum = momentum});
    const Tensor x = noise({5, 3, 2}, "x", 4).detached_copy(Dtype::F32);
    (void)ghost(x);
    for (const auto& [start, stop] : {std::pair{0, 2}, {2, 4}, {4, 5}}) {
      (void)batch(slice(x, 0, start, stop));
    }
    EXPECT_TRUE(same_bits(ghost.running_mean, batch.running_mean));
    EXPECT_TRUE(same_bits(ghost.running_var, batch.running_var));
    EXPECT_EQ(ghost.num_batches_tracked.data<std::int64_t>()[0], 3);
  }
}

TEST(GhostBatchNorm, WithOneVirtualBatchIsBatchNorm) {
  const Tensor x = noise({4, 5, 3}, "x", 1).set_requires_grad(), dy = noise({4, 5, 3}, "dy");
  for (const std::int64_t size : {4, 100}) {
    GhostBatchNorm ghost({.features = 3, .size = size});
    BatchNorm batch({.features = 3});
    ghost.to(Dtype::F64);
    batch.to(Dtype::F64);
    const Gradients a = gradients([&] { return ghost(x); }, dy);
    const Gradients b = gradients([&] { return batch(x); }, dy);
    EXPECT_TRUE(same_bits(a[x], b[x]));
    EXPECT_TRUE(same_bits(a[ghost.weight], b[batch.weight]));
    EXPECT_TRUE(same_bits(ghost.running_var, batch.running_var));
  }
}

TEST(GhostBatchNorm, ALastVirtualBatchOfOneValueIsRefusedAsByBatchNorm) {
  EXPECT_THROW((void)ghost_batch_norm(noise({5, 3}, "x"), 2), ShapeError);
  EXPECT_NO_THROW((void)ghost_batch_norm(noise({5, 2, 3}, "x"), 2));
  EXPECT_NO_THROW((void)ghost_batch_norm(noise({6, 3}, "x"), 2));
}

TEST(GhostBatchNorm, RefusesBadOptions) {
  EXPECT_THROW((void)ghost_batch_norm(noise({4, 3}, "x"), 0), Error);
  EXPECT_THROW(GhostBatchNorm({.features = 0}), Error);
  EXPECT_THROW(GhostBatchNorm({.features = 3, .size = 0}), Error);
  EXPECT_THROW(GhostBatchNorm({.features = 3, .eps = -1}), Error);
  EXPECT_THROW(GhostBatchNorm({.features = 3, .momentum = 1.1}), Error);
}

TEST(GhostBatchNorm, SaysItsSizeAndCopies) {
  GhostBatchNorm norm({.features = 3, .size = 2, .bias = false});
  EXPECT_EQ(norm.describe(),
            "GhostBatchNorm(3, size=2, eps=1e-05, new batch weighs momentum=0.1, bias=false)");
  const auto copy = clone(norm);
  (void)norm(noise({4, 2, 3}, "x", 5).detached_copy(Dtype::F32));
  EXPECT_EQ(copy->num_batches_tracked.data<std::int64_t>()[0], 0);
  EXPECT_EQ(copy->o.size, 2);
}

}  // namespace
}  // namespace steady
