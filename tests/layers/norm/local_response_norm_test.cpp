#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/local_response_norm.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <steadygrad/layers/norm/window_sum_kernel.hpp>

#include "tests/layers/norm/norm_testing.hpp"

namespace steady {
namespace {

using namespace norm_testing;
using testing::ElementsAre;

TEST(ChannelWindowSum, CutsTheWindowAtTheEdges) {
  const Tensor x = Tensor::of({2, 5}, {1, 2, 4, 8, 16, 1, 1, 1, 1, 1}, Dtype::F64);
  EXPECT_THAT(values(channel_window_sum(x, 1, 1)), ElementsAre(3, 7, 14, 28, 24, 2, 3, 3, 3, 2));
  EXPECT_THAT(values(channel_window_sum(x, 2, 0)), ElementsAre(1, 3, 7, 14, 28, 1, 2, 3, 3, 3));
  EXPECT_THAT(values(channel_window_sum(x, 9, 9)), ElementsAre(31, 31, 31, 31, 31, 5, 5, 5, 5, 5));
  EXPECT_THAT(values(channel_window_sum(x, 0, 0)), testing::ElementsAreArray(values(x)));
}

TEST(ChannelWindowSum, ItsGradientIsTheTransposedWindow) {
  const Tensor x = noise({1, 4}, "x").set_requires_grad();
  const Tensor dy = Tensor::of({1, 4}, {1, 10, 100, 1000}, Dtype::F64);
  const Gradients g = gradients([&] { return channel_window_sum(x, 2, 0); }, dy);
  EXPECT_THAT(values(g[x]), ElementsAre(111, 1110, 1100, 1000));
}

TEST(ChannelWindowSum, SizesThatDoNotMatchThrow) {
  std::vector<double> x(6), y(6);
  const auto run = [&](const WindowShape& shape) { window_sum<double>(shape, x, y); };
  EXPECT_NO_THROW(run({.rows = 2, .channels = 3, .before = 1, .after = 1}));
  EXPECT_THROW(run({.rows = 2, .channels = 4, .before = 1, .after = 1}), ShapeError);
  EXPECT_THROW(run({.rows = 2, .channels = 3, .before = -1, .after = 1}), ShapeError);
  EXPECT_THROW((void)channel_window_sum(noise({2, 3}, "x"), 0, -1), Error);
}

TEST(LocalResponseNorm, DividesByTheWindowsEnergy) {
  // size 3, alpha 3: s = 1 + sum of squares.
  const Tensor x = Tensor::of({1, 3}, {1, 2, -2}, Dtype::F64);
  const Tensor y = local_response_norm(x, {.size = 3, .alpha = 3, .beta = 0.5});
  expect_values(y, {1 / std::sqrt(6.0), 2 / std::sqrt(10.0), -2 / std::sqrt(9.0)}, 1e-14);
  // An even window reaches further to the lower channels.
  const Tensor even = local_response_norm(x, {.size = 2, .alpha = 2, .beta = 1});
  expect_values(even, {1.0 / 2, 2.0 / 6, -2.0 / 9}, 1e-14);
}

TEST(LocalResponseNorm, WithoutAlphaItIsAConstantFactor) {
  const Tensor x = noise({2, 3, 4}, "x");
  expect_values(
      local_response_norm(x, {.alpha = 0, .beta = 2, .k = 2}),
      [&] {
        std::vector<double> v = values(x);
        for (double& e : v) e /= 4;
        return v;
      }(),
      1e-14);
}

TEST(LocalResponseNorm, HasNoStateAndNoModes) {
  LocalResponseNorm norm({.features = 4, .size = 3});
  EXPECT_TRUE(norm.state().empty());
  EXPECT_EQ(norm.describe(), "LocalResponseNorm(4, size=3, alpha=0.0001, beta=0.75, k=1)");
  const Tensor x = noise({2, 3, 4}, "x");
  const Tensor y = norm(x);
  norm.eval();
  EXPECT_TRUE(same_bits(norm(x), y));
  EXPECT_TRUE(same_bits((*clone(norm))(x), y));
  EXPECT_TRUE(same_bits((*make_norm(NormSpec::parse("lrn(size=3)"), 4))(x), y));
  EXPECT_THROW((void)norm(noise({2, 3}, "x")), ShapeError);
  EXPECT_EQ(norm(noise({0, 4}, "none")).shape(), (Shape{0, 4}));
}

TEST(LocalResponseNorm, RefusesBadOptions) {
  EXPECT_THROW(LocalResponseNorm({.features = 0}), Error);
  EXPECT_THROW(LocalResponseNorm({.features = 4, .size = 0}), Error);
  EXPECT_THROW(LocalResponseNorm({.features = 4, .alpha = -1}), Error);
  EXPECT_THROW(LocalResponseNorm({.features = 4, .beta = -1}), Error);
  EXPECT_THROW(LocalResponseNorm({.features = 4, .k = 0}), Error);
  EXPECT_THROW((void)make_norm(NormSpec::parse("lrn(size=2.5)"), 4), Error);
  EXPECT_THROW((void)local_response_norm(noise({4}, "x"), {.size = -1}), Error);
}

}  // namespace
}  // namespace steady
