#include <steadygrad/layers/norm/weight_norm.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/layers/sequential.hpp>

#include "tests/layers/norm/norm_testing.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/op_table.hpp"

namespace steady {
namespace {

using namespace norm_testing;
using namespace testing_support;
using norm_testing::values;
using testing::HasSubstr;

const bool Table = register_ops(
    "WeightNorm", {
                      {.name = "rows",
                       .f = [](Inputs in) { return weight_norm(in[0], in[1]); },
                       .inputs = {real({3, 4}, 0.5, 2), real({3, 1})},
                       .large = {real({300, 257}, 0.5, 2), real({300, 1})}},
                      {.name = "kernels",
                       .f = [](Inputs in) { return weight_norm(in[0], in[1]); },
                       .inputs = {real({2, 3, 2, 2}, 0.5, 2), real({2, 1, 1, 1})}},
                      {.name = "columns",
                       .f = [](Inputs in) { return weight_norm(in[0], in[1], 1); },
                       .inputs = {real({3, 4}, 0.5, 2), real({1, 4})}},
                      {.name = "whole",
                       .f = [](Inputs in) { return weight_norm(in[0], in[1], std::nullopt); },
                       .inputs = {real({3, 4}, 0.5, 2), real({})}},
                  });

TEST(WeightNormGolden, EveryCase) {
  for (const GoldenCase& c : Golden("norms.h5").cases("weight_norm")) {
    const bool whole = c.attribute_int("whole_tensor") == 1;
    const std::optional<int> dim =
        whole ? std::nullopt : std::optional(static_cast<int>(c.attribute_int("dim")));
    expect_golden(c, [&](GoldenInputs& in) { return weight_norm(in.at("v"), in.at("g"), dim); });
  }
}

TEST(WeightNorm, HasTheNamesShapesAndRolesOfPyTorch) {
  const WeightNorm<Conv2d> conv({.inner = {.in = 4, .out = 6, .kernel = 3, .groups = 2}});
  const std::vector<Parameter> p = conv.parameters();
  ASSERT_EQ(p.size(), 3U);
  EXPECT_EQ(p[0].name, "bias");
  EXPECT_EQ(p[1].name, "weight_v");
  EXPECT_EQ(p[1].value.shape(), (Shape{6, 2, 3, 3}));
  EXPECT_EQ(p[1].role, Role::Weight);
  EXPECT_EQ(p[2].name, "weight_g");
  EXPECT_EQ(p[2].value.shape(), (Shape{6, 1, 1, 1}));
  EXPECT_EQ(p[2].role, Role::NormScale);
  EXPECT_EQ(WeightNorm<Linear>({.inner = {.in = 4, .out = 6}, .dim = 1}).weight_g.shape(),
            (Shape{1, 4}));
  EXPECT_EQ(WeightNorm<Linear>({.inner = {.in = 4, .out = 6}, .dim = std::nullopt}).weight_g.rank(),
            0);
  EXPECT_EQ(WeightNorm<Linear>({.inner = {.in = 4, .out = 6, .bias = false}}).parameters().size(),
            2U);
}

TEST(WeightNorm, StartsAsThePlainLayerDoes) {
  for (const std::optional<int> dim : {std::optional(0), std::optional(1), std::optional<int>()}) {
    WeightNorm<Linear> layer({.inner = {.in = 5, .out = 3}, .dim = dim});
    layer.initialize(3);
    layer.to(Dtype::F64);
    expect_values(layer.weight(), values(layer.weight_v), 1e-7);  // g was rounded to float32
  }
}

TEST(WeightNorm, IsThePlainLayerWithItsWeight) {
  Sequential model;
  auto& wrapped = model.add<WeightNorm<Conv2d>>(
      "conv", {.inner = {.in = 2, .out = 3, .kernel = 3, .stride = 2, .padding = 1}});
  model.initialize(1);
  for (float& g : wrapped.weight_g.mutable_data<float>()) g *= 1.5F;
  Conv2d plain(wrapped.o.inner);
  plain.load({{"weight", wrapped.weight()}, {"bias", wrapped.bias}});
  const Tensor x = noise({2, 5, 5, 2}, "x").detached_copy(Dtype::F32);
  EXPECT_TRUE(same_bits(model(x), plain(x)));
  const auto copy = clone(wrapped);
  EXPECT_TRUE(same_bits((*copy)(x), plain(x)));
}

TEST(WeightNorm, LengthOfEachUnitIsItsG) {
  const Tensor v = noise({4, 3, 2, 2}, "v", 0.3);
  const Tensor g = noise({4, 1, 1, 1}, "g", 1);
  const Tensor w = weight_norm(v, g);
  expect_values(sqrt(sum(square(w), {1, 2, 3}, true)), values(abs(g)));
}

TEST(WeightNorm, GradientOfTheDirectionIsOrthogonalToItSoThatStepsLengthenIt) {
  const Tensor v = noise({4, 7}, "v").set_requires_grad();
  const Tensor g = noise({4, 1}, "g", 1).set_requires_grad();
  const Gradients d = gradients([&] { return tanh(weight_norm(v, g)); }, noise({4, 7}, "c"));
  const Tensor dv = d[v];
  for (const double inner : values(sum(v.detach() * dv, -1))) EXPECT_NEAR(inner, 0, 1e-14);
  constexpr double Rate = 0.3;  // |v - rate dv|^2 = |v|^2 + rate^2 |dv|^2
  const Tensor moved = sum(square(v.detach() - dv * Rate), -1);
  const Tensor sides = sum(square(v.detach()), -1) + sum(square(dv), -1) * (Rate * Rate);
  expect_values(moved, values(sides), 1e-14);
}

TEST(WeightNorm, RefusesADirectionOfLengthZeroByItsNumber) {
  Tensor v = noise({3, 4}, "v");
  for (std::size_t i = 4; i < 8; ++i) v.mutable_data<double>()[i] = 0;
  const Tensor g = Tensor::ones({3, 1}, Dtype::F64);
  EXPECT_THAT(message_of([&] { (void)weight_norm(v, g); }), HasSubstr("slice 1 of v has norm 0"));
  v.mutable_data<double>()[5] = std::nan("");
  EXPECT_THROW((void)weight_norm(v, g), NonFiniteError);
  // A length of zero is how a unit starts at zero; its direction learns nothing until it has one.
  const Tensor direction = noise({3, 4}, "direction").set_requires_grad();
  const Tensor zero = Tensor::zeros({3, 1}, Dtype::F64).set_requires_grad();
  const Gradients d =
      gradients([&] { return weight_norm(direction, zero); }, noise({3, 4}, "cotangent"));
  for (const double dv : values(d[direction])) EXPECT_EQ(dv, 0);
  for (const double dg : values(d[zero])) EXPECT_NE(dg, 0);
}

TEST(WeightNorm, RefusesWhatDoesNotFit) {
  const Tensor v = noise({3, 4}, "v");
  EXPECT_THROW((void)weight_norm(v, Tensor::ones({3}, Dtype::F64)), ShapeError);
  EXPECT_THROW((void)weight_norm(v, Tensor::ones({3, 1})), ShapeError);
  EXPECT_THROW((void)weight_norm(v, Tensor::ones({3, 1}, Dtype::F64), 2), ShapeError);
  EXPECT_THROW((WeightNorm<Linear>({.inner = {.in = 0, .out = 3}})), Error);
  EXPECT_THROW((WeightNorm<Linear>({.inner = {.in = 2, .out = 3}, .dim = 2})), ShapeError);
}

TEST(WeightNorm, SaysWhatItWraps) {
  EXPECT_EQ(WeightNorm<Linear>({.inner = {.in = 2, .out = 3}}).describe(),
            "WeightNorm(Linear(2, 3), dim=0)");
  EXPECT_EQ(WeightNorm<Linear>({.inner = {.in = 2, .out = 3}, .dim = std::nullopt}).describe(),
            "WeightNorm(Linear(2, 3), whole)");
}

}  // namespace
}  // namespace steady
