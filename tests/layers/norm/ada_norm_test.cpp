#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/gradcheck.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/layers/norm/ada_norm.hpp>
#include <steadygrad/layers/norm/adaptive_norm.hpp>
#include <steadygrad/layers/norm/layer_norm.hpp>
#include <steadygrad/layers/norm/rms_norm.hpp>

#include "tests/layers/norm/norm_testing.hpp"

// Norms whose gain is a function of something: of the normalized value, of a condition.

namespace steady {
namespace {

using namespace norm_testing;
using testing::HasSubstr;

TEST(AdaNorm, MultipliesTheNormalizedValueByAFallingFactor) {
  const Tensor x = Tensor::of({1, 2}, {3, 1}, Dtype::F64);  // normalized: 1, -1
  expect_values(ada_norm(x, {2}, {.c = 2, .k = 0.1, .eps = 0}), {1.8, -2.2}, 1e-15);
  EXPECT_TRUE(same_bits(ada_norm(x, {2}), ada_norm(x, {2}, {.detach = false})));
}

/// The paper's derivative: that of factor * y with the factor held at its value.
TEST(AdaNorm, DetachedTakesTheFactorForAConstant) {
  const Tensor x = noise({3, 5}, "x").set_requires_grad();
  const AdaNormOptions options{.c = 1.5, .k = 0.3};
  const Tensor held = 1.5 * (1.0 - 0.3 * layer_norm(x.detach(), {5}));
  const GradcheckResult result =
      gradcheck([&](std::span<const Tensor> in) { return held * layer_norm(in[0], {5}); }, {{x}},
                {.tolerance = 1e-8});
  EXPECT_TRUE(result.ok) << result.message;
  const Tensor dy = noise({3, 5}, "dy");
  const Gradients frozen = gradients([&] { return held * layer_norm(x, {5}); }, dy);
  const Gradients detached = gradients([&] { return ada_norm(x, {5}, options); }, dy);
  expect_values(detached[x], values(frozen[x]), 1e-14);
}

/// In second order too: the factor passes nothing on to x.
TEST(AdaNorm, DetachedHasTheSecondDerivativeOfTheFrozenFactor) {
  const Tensor x = noise({2, 4}, "x").set_requires_grad();
  const Tensor dy = noise({2, 4}, "dy"), v = noise({2, 4}, "v");
  const Tensor held = 1.0 - 0.1 * layer_norm(x.detach(), {4});
  const auto second = [&](const std::function<Tensor()>& f) {
    Tape tape;
    const Tensor y = f();
    const Gradients first = tape.backward(y, {.record = true, .cotangent = dy});
    return values(tape.backward(first[x], {.cotangent = v})[x]);
  };
  const std::vector<double> want = second([&] { return held * layer_norm(x, {4}); });
  const std::vector<double> got = second([&] { return ada_norm(x, {4}); });
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12);
}

/// A check that compares with differences of the whole function must see the detached factor.
TEST(AdaNorm, DetachedIsNotTheDerivativeOfItsValues) {
  const Tensor x = noise({3, 5}, "x").set_requires_grad();
  const auto f = [](bool detach) {
    return
        [detach](std::span<const Tensor> in) { return ada_norm(in[0], {5}, {.detach = detach}); };
  };
  EXPECT_FALSE(gradcheck(f(true), {{x}}, {.tolerance = 1e-8}).ok);
  EXPECT_TRUE(gradcheck(f(false), {{x}}, {.tolerance = 1e-8}).ok);
}

TEST(AdaNorm, RefusesBadOptions) {
  EXPECT_THROW(AdaNorm({}), ShapeError);
  EXPECT_THROW(AdaNorm({.normalized_shape = {4}, .factor = {.c = 0}}), Error);
  EXPECT_THROW(AdaNorm({.normalized_shape = {4}, .factor = {.k = -1}}), Error);
  EXPECT_THROW(AdaNorm({.normalized_shape = {4}, .factor = {.eps = -1}}), Error);
  EXPECT_THROW((void)ada_norm(Tensor::ones({2, 3}), {2}), ShapeError);
  EXPECT_EQ(AdaNorm({.normalized_shape = {4}, .factor = {.detach = false}}).describe(),
            "AdaNorm([4], c=1, k=0.1, eps=1e-05, detach=false)");
}

TEST(AdaptiveNorm, StartsAsItsNorm) {
  const Tensor x = noise({2, 3, 4}, "x").detached_copy(Dtype::F32);
  const Tensor condition = noise({2, 5}, "c").detached_copy(Dtype::F32);
  AdaptiveNorm layer({.features = 4, .condition = 5});
  layer.initialize(1);
  EXPECT_TRUE(same_bits(layer(x, condition), layer_norm(x, {4}, {}, {}, 1e-6)));
  AdaptiveNorm rms({.features = 4, .condition = 5, .norm = NormSpec::parse("rms(affine=false)")});
  rms.initialize(1);
  EXPECT_TRUE(same_bits(rms(x, condition), rms_norm(x, {4})));
}

TEST(AdaptiveNorm, ScalesAndShiftsByTheCondition) {
  AdaptiveNorm norm({.features = 2, .condition = 1, .norm = NormSpec::parse("none")});
  norm.initialize(1);
  norm.to(Dtype::F64);
  norm.linear.weight.copy_from(Tensor::of({4, 1}, {1, 2, 3, 4}, Dtype::F64));  // shift, scale
  norm.linear.bias.copy_from(Tensor::of({4}, {0, 0, 0, 1}, Dtype::F64));
  const Tensor x = Tensor::of({2, 1, 2}, {10, 100, 10, 100}, Dtype::F64);
  // Sample 0: shift (1, 2), scale (3, 5); sample 1: shift (2, 4), scale (6, 9).
  const std::vector<double> want{10 * 4 + 1, 100 * 6 + 2, 10 * 7 + 2, 100 * 10 + 4};
  expect_values(norm(x, Tensor::of({2, 1}, {1, 2}, Dtype::F64)), want);
  expect_values(norm(x, Tensor::of({2, 1, 1}, {1, 2}, Dtype::F64)), want);
}

TEST(AdaptiveNorm, RefusesWhatDoesNotFit) {
  AdaptiveNorm norm({.features = 4, .condition = 5});
  norm.initialize(1);
  const Tensor x = Tensor::ones({2, 3, 4});
  EXPECT_THROW((void)norm(x, {}), ShapeError);
  EXPECT_THROW((void)norm(x, Tensor::ones({2, 4})), ShapeError);
  EXPECT_THROW((void)norm(x, Tensor::ones({3, 5})), ShapeError);
  EXPECT_THROW((void)norm(x, Tensor::ones({5})), ShapeError);
  EXPECT_THROW((void)norm(x, Tensor::ones({2, 2, 5})), ShapeError);
  EXPECT_THROW((void)norm(Tensor::ones({2, 3, 5}), Tensor::ones({2, 5})), ShapeError);
  EXPECT_THROW(AdaptiveNorm({.features = 0, .condition = 5}), Error);
  try {
    Layer& layer = norm;
    (void)layer(x);
    ADD_FAILURE() << "ran without a condition";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("needs a condition"));
  }
}

}  // namespace
}  // namespace steady
