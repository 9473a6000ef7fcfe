#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/layers/norm/rms_norm.hpp>

#include "tests/layers/norm/norm_testing.hpp"

namespace steady {
namespace {

using namespace norm_testing;
using testing::HasSubstr;

TEST(RmsNorm, AddsEpsInsideTheRoot) {  // CASES LN-05
  const Tensor x = Tensor::of({1, 4}, {1e-3, -2e-3, 5e-4, 0}, Dtype::F64);
  const Tensor w = Tensor::ones({4}, Dtype::F64);
  expect_values(rms_norm(x, {4}, w),
                {0.6575959492214292, -1.3151918984428583, 0.3287979746107146, 0});
  expect_values(rms_norm(x, {4}, w, 1e-5),
                {0.29731765849886654, -0.5946353169977331, 0.14865882924943327, 0});
}

TEST(RmsNorm, OfASpikyRow) {  // CASES LN-05
  const auto spike = [](double i) { return i == 0 ? 100.0 : 0.01; };
  const Tensor x = generate({1, 4096}, spike);
  const std::vector<double> y = values(rms_norm(x, {4096}, {}, 1e-5));
  EXPECT_NEAR(y[0], 63.998558576697626, 1e-10);
  EXPECT_NEAR(y[1], 0.006399855857669763, 1e-13);
  const std::vector<double> narrow =
      values(rms_norm(x.detached_copy(Dtype::F32), {4096}, {}, 1e-5));
  EXPECT_NEAR(narrow[0], 63.998558576697626, 1e-4);
  EXPECT_NEAR(narrow[1], 0.006399855857669763, 1e-8);
}

TEST(RmsNorm, OfAZeroRowIsZeroWithAFiniteGradient) {  // CASES LN-06
  const Tensor x = leaf({1, 3}, {0, 0, 0});
  const Tensor w = leaf({3}, {1, 2, 3});
  EXPECT_EQ(values(rms_norm(x, {3}, w)), (std::vector<double>{0, 0, 0}));
  const Gradients g =
      gradients([&] { return rms_norm(x, {3}, w); }, Tensor::of({1, 3}, {1, -1, 0.5}, Dtype::F64));
  expect_values(g[x], {1000, -2000, 1500});
  EXPECT_EQ(values(g[w]), (std::vector<double>{0, 0, 0}));
}

TEST(RmsNorm, AddsTheUnitOffsetInFullPrecision) {  // CASES LN-09
  const Tensor one = Tensor::of({1, 1}, {1}, Dtype::F32);
  const Tensor w = Tensor::of({1}, {15.8125}, Dtype::F32);
  expect_values(rms_norm(one, {1}, w, 0, true), {16.8125}, 1e-7);

  const Tensor x = Tensor::of({1, 4}, {0.69921875, -1.296875, 2.09375, 0.400390625});
  const Tensor gain = Tensor::of({4}, {1.0078125, 0.369140625, 1.7734375, 0.9296875});
  expect_values(rms_norm(x, {4}, gain),
                {0.5438800305278944, -0.3694879407081148, 2.865833921198301, 0.2872970712556404},
                1e-6);
}

TEST(RmsNorm, LeavesItsInputAlone) {  // CASES LN-10
  const Tensor x = Tensor::of({1, 2}, {3, 4});
  const Tensor y = rms_norm(x, {2}, {}, 0);
  expect_values(y, {0.848528137423857, 1.131370849898476}, 1e-6);
  expect_values(x + y, {3.848528137423857, 5.131370849898476}, 1e-6);
  EXPECT_EQ(values(x), (std::vector<double>{3, 4}));
  EXPECT_FALSE(y.shares_storage_with(x));
}

TEST(RmsNorm, WithACotangentOfOnes) {  // CASES LN-13
  const Tensor x = leaf({2, 3}, {1, 2, 4, 0, -1, 5});
  const Tensor w = leaf({3}, {1, 2, -3});
  const Gradients g =
      gradients([&] { return rms_norm(x, {3}, w); }, Tensor::ones({2, 3}, Dtype::F64));
  expect_values(g[x], {0.5039525766840525, 1.007905153368105, -0.6299408153461639,
                       0.33968309064627794, 0.45726572457388837, 0.09145301165450404});
  expect_values(g[w], {0.3779644460117677, 0.4162458013772575, 3.210273237278461});
}

TEST(RmsNorm, BackwardLeavesTheCotangentAlone) {  // CASES LN-20
  const Tensor x = leaf({2, 3}, {1, 2, 4, 0, -1, 5});
  const Tensor w = leaf({3}, {1, 2, -3});
  const Tensor dy = noise({2, 3}, "dy");
  const Tensor copy = dy.detached_copy();
  const Gradients g = gradients([&] { return rms_norm(x, {3}, w); }, dy);
  EXPECT_TRUE(same_bits(dy, copy));
  EXPECT_FALSE(g[x].shares_storage_with(dy));
}

TEST(RmsNorm, EveryPathGivesAWeightGradient) {  // CASES LN-21
  for (const bool unit_offset : {false, true}) {
    for (const std::int64_t width : {1, 7, 8, 16, 33}) {
      const Tensor x = noise({6, width}, "x");
      const Tensor w = Tensor::ones({width}, Dtype::F64).set_requires_grad();
      const Gradients g = gradients([&] { return rms_norm(x, {width}, w, 1e-6, unit_offset); },
                                    noise({6, width}, "dy"));
      ASSERT_TRUE(g.contains(w)) << width;
      EXPECT_EQ(g[w].shape(), w.shape());
    }
  }
}

TEST(RmsNorm, UsesEpsInFullPrecision) {  // CASES LN-22
  const double r = std::sqrt(2e-4);
  const Tensor x = Tensor::of({1, 2}, {r, -r}, Dtype::F64);
  const double scale = 1 / std::sqrt(2.01e-4);
  expect_values(rms_norm(x, {2}, {}, 1e-6), {scale * r, -scale * r}, 1e-14);
  const Tensor tiny = Tensor::of({1, 2}, {1e-6, -1e-6}, Dtype::F64);
  expect_values(rms_norm(tiny, {2}, {}, 1e-12), {std::sqrt(0.5), -std::sqrt(0.5)}, 1e-14);
}

TEST(RmsNorm, TakesAWeightOfExactlyTheDeclaredShape) {  // CASES LN-16
  const Tensor x = Tensor::ones({5, 3, 4});
  EXPECT_NO_THROW((void)rms_norm(x, {3, 4}, Tensor::ones({3, 4})));
  for (const Shape& shape : {Shape{4}, Shape{12}, Shape{1, 3, 4}, Shape{3}}) {
    EXPECT_THROW((void)rms_norm(x, {3, 4}, Tensor::ones(shape)), ShapeError);
  }
  EXPECT_THROW((void)rms_norm(x, {5}), ShapeError);
  EXPECT_THROW((void)rms_norm(x, {4}, {}, -1.0), Error);
  EXPECT_THROW((void)rms_norm(Tensor::ones({2}, Dtype::I64), {2}), ShapeError);
}

TEST(RmsNorm, RefusesAThirdDerivativeByName) {  // CASES LN-18
  const Tensor x = leaf({1, 3}, {1, 2, 4});
  const Tensor v = Tensor::of({1, 3}, {1, 0.5, -2}, Dtype::F64);
  Tape tape;
  const Tensor y = rms_norm(x, {3});
  const Gradients first = tape.backward(y, {.record = true, .cotangent = v});
  const Gradients second = tape.backward(first[x], {.record = true, .cotangent = v});
  try {
    (void)tape.backward(second[x], {.cotangent = v});
    ADD_FAILURE() << "a third derivative came back";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("rms_norm_double_backward"));
  }
}

TEST(RmsNorm, OfNoRowsIsEmptyWithAZeroWeightGradient) {
  const Tensor x = Tensor::zeros({0, 3}, Dtype::F64).set_requires_grad();
  const Tensor w = leaf({3}, {1, 1, 1});
  const Gradients g =
      gradients([&] { return rms_norm(x, {3}, w); }, Tensor::zeros({0, 3}, Dtype::F64));
  EXPECT_EQ(g[x].shape(), (Shape{0, 3}));
  EXPECT_EQ(values(g[w]), (std::vector<double>{0, 0, 0}));
}

TEST(RmsNormModule, IsTheOperationWithItsWeight) {
  const Tensor x = noise({2, 3, 4}, "x").detached_copy(Dtype::F32);
  RmsNorm norm({.normalized_shape = {4}});
  EXPECT_TRUE(same_bits(norm(x), rms_norm(x, {4}, norm.weight)));
  RmsNorm gemma({.normalized_shape = {4}, .unit_offset = true});
  EXPECT_EQ(values(gemma.weight), (std::vector<double>{0, 0, 0, 0}));
  EXPECT_TRUE(same_bits(gemma(x), norm(x)));
  RmsNorm bare({.normalized_shape = {3, 4}, .eps = 0.5, .affine = false});
  EXPECT_TRUE(bare.parameters().empty());
  EXPECT_TRUE(same_bits(bare(x), rms_norm(x, {3, 4}, {}, 0.5)));
  ASSERT_EQ(norm.parameters().size(), 1U);
  EXPECT_EQ(norm.parameters()[0].role, Role::NormScale);
  EXPECT_EQ(gemma.describe(), "RmsNorm([4], eps=1e-06, unit_offset=true)");
}

TEST(RmsNormModule, RefusesBadOptions) {
  EXPECT_THROW(RmsNorm({}), ShapeError);
  EXPECT_THROW(RmsNorm({.normalized_shape = {0}}), ShapeError);
  EXPECT_THROW(RmsNorm({.normalized_shape = {4}, .eps = -1}), Error);
  EXPECT_THROW(RmsNorm({.normalized_shape = {4}, .affine = false, .unit_offset = true}), Error);
}

}  // namespace
}  // namespace steady
