#include <steadygrad/layers/norm/weight_standardization.hpp>

#include <gtest/gtest.h>

#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/layers/sequential.hpp>

#include "tests/layers/norm/norm_testing.hpp"
#include "tests/support/op_table.hpp"

namespace steady {
namespace {

using namespace norm_testing;
using namespace testing_support;
using norm_testing::values;

const bool Table = register_ops(
    "WeightStandardization", {
                                 {.name = "matrix",
                                  .f = [](Inputs in) { return weight_standardization(in[0]); },
                                  .inputs = {real({3, 5})},
                                  .large = {real({300, 257})}},
                                 {.name = "kernels",
                                  .f = [](Inputs in) { return weight_standardization(in[0], 0.1); },
                                  .inputs = {real({2, 3, 2, 2})}},
                             });

TEST(WeightStandardization, GivesEveryOutputChannelMeanZeroAndVarianceOne) {
  const Tensor w = weight_standardization(noise({5, 3, 2, 2}, "w", 4, 0.01), 0);
  for (const double mean : values(mean(w, {1, 2, 3}))) EXPECT_NEAR(mean, 0, 1e-12);
  for (const double var : values(var(w, {1, 2, 3}, {.unbiased = false}))) {
    EXPECT_NEAR(var, 1, 1e-10);
  }
}

TEST(WeightStandardization, IsBlindToScaleAndShiftOfAUnitAndSoIsItsGradient) {
  const Tensor w = noise({4, 6}, "w").set_requires_grad();
  const Tensor s = Tensor::of({4, 1}, {0.5, 3, 7, 1}, Dtype::F64);
  const Tensor moved = (w.detach() * s + 2.0).detached_copy().set_requires_grad();
  expect_values(weight_standardization(moved, 0), values(weight_standardization(w, 0)), 1e-13);
  const Tensor c = noise({4, 6}, "c");
  const auto gradient = [&](const Tensor& at) {
    return gradients([&] { return tanh(weight_standardization(at, 0)); }, c)[at];
  };
  const Tensor d = gradient(w);
  expect_values(gradient(moved), values(d / s), 1e-12);  // the gradient by s w + t is that / s
  for (const double total : values(sum(d, -1))) EXPECT_NEAR(total, 0, 1e-13);
  for (const double inner : values(sum(d * w.detach(), -1))) EXPECT_NEAR(inner, 0, 1e-13);
}

TEST(WeightStandardization, AConstantKernelIsZeroWithAFiniteGradient) {
  const Tensor w = Tensor::full({2, 9}, 0.3).set_requires_grad();
  const Tensor dw = noise({2, 9}, "dw").detached_copy(Dtype::F32);
  const Gradients g = gradients([&] { return weight_standardization(w); }, dw);
  for (const double v : values(weight_standardization(w))) EXPECT_EQ(v, 0);
  for (const double v : values(g[w])) EXPECT_TRUE(std::isfinite(v));
}

TEST(WeightStandardization, IsThePlainLayerWithItsWeightUnderItsNames) {
  Sequential model;
  auto& wrapped = model.add<WeightStandardization<Conv2d>>(
      "conv", {.inner = {.in = 2, .out = 3, .kernel = 3, .padding = 1}});
  model.initialize(1);
  EXPECT_EQ(model.state()[0].name, "conv.weight");
  EXPECT_EQ(model.state()[1].name, "conv.bias");
  Conv2d plain(wrapped.o.inner);
  plain.load({{"weight", wrapped.standardized()}, {"bias", wrapped.bias}});
  const Tensor x = noise({2, 5, 5, 2}, "x").detached_copy(Dtype::F32);
  EXPECT_TRUE(same_bits(model(x), plain(x)));
  EXPECT_TRUE(same_bits((*clone(wrapped))(x), plain(x)));
  EXPECT_EQ(wrapped.describe(),
            "WeightStandardization(Conv2d(2, 3, kernel=3x3, padding=1x1), eps=1e-10)");
}

TEST(WeightStandardization, MultipliesTheVarianceOfItsInputsByTheirNumber) {
  WeightStandardization<Linear> layer({.inner = {.in = 400, .out = 300, .bias = false}});
  layer.initialize(1);
  layer.to(Dtype::F64);
  const Tensor y = layer(noise({200, 400}, "x"));
  EXPECT_NEAR(mean(square(y)).item() / 400, 1, 0.05);
}

TEST(WeightStandardization, RefusesWhatDoesNotFit) {
  EXPECT_THROW((void)weight_standardization(noise({4}, "w")), ShapeError);
  EXPECT_THROW((WeightStandardization<Linear>({.inner = {.in = 2, .out = 2}, .eps = -1})), Error);
}

}  // namespace
}  // namespace steady
