#include <gtest/gtest.h>

#include <algorithm>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/layer_function.hpp>
#include <steadygrad/layers/linear.hpp>

namespace steady {
namespace {

struct Pair : Layer {
  Linear& a = add<Linear>("a", {.in = 3, .out = 3});
  Linear& b = add<Linear>("b", {.in = 3, .out = 3, .bias = false});
  Pair() { b.weight = a.weight; }
  Tensor forward(const Tensor& x) override { return b(a(x)); }
};

Tensor input() {
  Tensor x = Tensor::empty({2, 3}, Dtype::F64);
  double next = -1;
  for (double& v : x.mutable_data<double>()) v = next += 0.37;
  return x;
}

TEST(LayerFunction, TakesTheParametersOfTheLayerAsInputs) {
  Linear layer({.in = 3, .out = 2});
  layer.initialize(1);
  layer.to(Dtype::F64);
  const auto [f, inputs] = as_function(layer, input());
  ASSERT_EQ(inputs.size(), 3U);
  EXPECT_EQ(inputs[1].shape(), layer.weight.shape());
  EXPECT_EQ(inputs[2].shape(), layer.bias.shape());
  EXPECT_TRUE(gradcheck(f, inputs).ok);
  EXPECT_TRUE(gradcheck_second(f, inputs).ok);
}

TEST(LayerFunction, ATiedParameterIsOneInput) {
  Pair layer;
  layer.initialize(1);
  layer.to(Dtype::F64);
  const auto [f, inputs] = as_function(layer, input());
  ASSERT_EQ(inputs.size(), 3U);
  EXPECT_TRUE(gradcheck(f, inputs).ok);
}

TEST(LayerFunction, LeavesTheLayerAsItWas) {
  Linear layer({.in = 3, .out = 2});
  layer.initialize(1);
  layer.to(Dtype::F64);
  const Tensor weight = layer.weight, before = layer.weight.detached_copy();
  auto [f, inputs] = as_function(layer, input());
  std::ranges::fill(inputs[1].mutable_data<double>(), 0.0);
  std::ranges::fill(inputs[2].mutable_data<double>(), 2.5);
  const Tensor y = f(inputs);
  EXPECT_TRUE(std::ranges::all_of(y.data<double>(), [](double v) { return v == 2.5; }));
  EXPECT_EQ(layer.weight.storage().id(), weight.storage().id());
  EXPECT_TRUE(std::ranges::equal(layer.weight.data<double>(), before.data<double>()));
}

TEST(LayerFunction, RefusesALayerWithoutValuesAndAnotherNumberOfInputs) {
  Linear layer({.in = 3, .out = 2});
  EXPECT_THROW((void)as_function(layer, input()), Error);
  layer.initialize(1);
  layer.to(Dtype::F64);
  const auto [f, inputs] = as_function(layer, input());
  EXPECT_THROW((void)f(std::span(inputs).first(2)), Error);
}

}  // namespace
}  // namespace steady
