// Linear, Conv2d, pooling, activation and dropout layers: options, modes, descriptions. What they
// compute is tested with the operations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/state_update.hpp>
#include <steadygrad/layers/activation.hpp>
#include <steadygrad/layers/conv2d.hpp>
#include <steadygrad/layers/dropout.hpp>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/pool.hpp>
#include <steadygrad/layers/sequential.hpp>

namespace steady {
namespace {

using testing::Each;
using testing::ElementsAreArray;
using testing::HasSubstr;

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no exception";
}

TEST(Linear, StartsAsPyTorchDoes) {
  Linear layer({.in = 100, .out = 50});
  layer.initialize(1);
  EXPECT_EQ(layer.weight.shape(), Shape({50, 100}));
  for (const Tensor& t : {layer.weight, layer.bias}) {
    EXPECT_THAT(t.data<float>(), Each(testing::AllOf(testing::Ge(-0.1F), testing::Le(0.1F))));
  }
  double square = 0;
  for (const float v : layer.weight.data<float>()) square += double{v} * double{v};
  EXPECT_NEAR(std::sqrt(square / 5000), 0.1 / std::sqrt(3.0), 0.002);
}

TEST(Linear, WithoutBiasHasOnlyAWeight) {
  Linear layer({.in = 3, .out = 2, .bias = false, .weight_init = constant_init(2)});
  layer.initialize(1);
  EXPECT_EQ(layer.state().size(), 1U);
  EXPECT_FALSE(layer.bias.defined());
  EXPECT_THAT(layer(Tensor::ones({4, 3})).data<float>(), Each(6.0F));
  EXPECT_EQ(layer.describe(), "Linear(3, 2, bias=false)");
}

TEST(Linear, WrongInputIsAnErrorWithThePath) {
  Sequential net;
  net.add<Linear>("fc", {.in = 3, .out = 2});
  net.initialize(1);
  EXPECT_THAT(message_of([&] {
                (void)net(Tensor::ones({4, 5}));
              }),
              testing::AllOf(HasSubstr("in 'fc': linear"), HasSubstr("[4, 5]")));
}

TEST(Layers, OptionsOutOfRangeAreRefusedAtConstruction) {
  EXPECT_THROW(Linear({.in = 0, .out = 2}), Error);
  EXPECT_THROW(Conv2d({.in = 3}), Error);
  EXPECT_THROW(Conv2d({.in = 3, .out = 4, .groups = 2}), Error);
  EXPECT_THROW(Conv2d({.in = 3, .out = 4, .stride = 0}), Error);
  EXPECT_THROW(Conv2d({.in = 3, .out = 4, .padding = -1}), Error);
  EXPECT_THROW(Dropout({.p = 1.5}), Error);
  EXPECT_THROW(Dropout({.p = std::nan("")}), Error);
}

TEST(Conv2d, ShapesAndDescription) {
  Conv2d conv({.in = 4, .out = 6, .kernel = {3, 5}, .stride = 2, .padding = {1, 2}, .groups = 2});
  conv.initialize(1);
  EXPECT_EQ(conv.weight.shape(), Shape({6, 2, 3, 5}));
  EXPECT_EQ(conv(Tensor::ones({2, 9, 8, 4})).shape(), Shape({2, 5, 4, 6}));
  EXPECT_EQ(conv.describe(), "Conv2d(4, 6, kernel=3x5, stride=2x2, padding=1x2, groups=2)");
  const float bound = 1.0F / std::sqrt(30.0F);
  EXPECT_THAT(conv.weight.data<float>(),
              Each(testing::AllOf(testing::Ge(-bound), testing::Le(bound))));
}

TEST(Pool, ShapesOfThePoolingLayers) {
  const Tensor x = Tensor::ones({2, 7, 8, 3});
  EXPECT_EQ(MaxPool2d({.kernel = 2})(x).shape(), Shape({2, 3, 4, 3}));
  EXPECT_EQ(MaxPool2d({.kernel = 3, .stride = 2, .padding = 1})(x).shape(), Shape({2, 4, 4, 3}));
  EXPECT_EQ(AvgPool2d({.kernel = 2, .ceil_mode = true})(x).shape(), Shape({2, 4, 4, 3}));
  EXPECT_EQ(GlobalAvgPool2d({})(x).shape(), Shape({2, 3}));
  EXPECT_EQ(Flatten({})(x).shape(), Shape({2, 168}));
}

TEST(Activation, LayersApplyTheirOperation) {
  const Tensor x = Tensor::of({4}, {-2, -0.5, 0, 3});
  EXPECT_THAT(ReluLayer()(x).data<float>(), testing::ElementsAre(0, 0, 0, 3));
  EXPECT_THAT(LeakyReluLayer({.slope = 0.5})(x).data<float>(),
              testing::ElementsAre(-1, -0.25, 0, 3));
  EXPECT_THAT(GeluLayer()(x).data<float>(), ElementsAreArray(gelu(x).data<float>()));
  EXPECT_THAT(GeluTanhLayer()(x).data<float>(),
              ElementsAreArray(gelu(x, Gelu::Tanh).data<float>()));
  EXPECT_THAT(SiluLayer()(x).data<float>(), ElementsAreArray(silu(x).data<float>()));
  EXPECT_THAT(TanhLayer()(x).data<float>(), ElementsAreArray(tanh(x).data<float>()));
  EXPECT_THAT(SigmoidLayer()(x).data<float>(), ElementsAreArray(sigmoid(x).data<float>()));
  EXPECT_THAT(SoftplusLayer({})(x).data<float>(), ElementsAreArray(softplus(x).data<float>()));
  EXPECT_EQ(ReluLayer().describe(), "Relu");
}

TEST(Dropout, WorksInTrainModeOnlyAndRepeats) {
  Dropout layer({.p = 0.25});
  const Tensor x = Tensor::ones({10000});
  const auto kept = [&] {
    std::int64_t count = 0;
    const Tensor y = layer(x);
    for (const float v : y.data<float>()) count += v != 0 ? 1 : 0;
    return count;
  };
  layer.initialize(3);
  EXPECT_NEAR(static_cast<double>(kept()), 7500, 250);
  const Tensor second = layer(x);
  EXPECT_EQ(layer.calls(), 2U);
  layer.initialize(3);
  const Tensor first = layer(x);
  EXPECT_THAT(layer(x).data<float>(), ElementsAreArray(second.data<float>()));
  EXPECT_FALSE(std::ranges::equal(first.data<float>(), second.data<float>()));
  layer.eval();
  EXPECT_THAT(layer(x).data<float>(), Each(1.0F));
  layer.train();
  layer.freeze();
  EXPECT_THAT(layer(x).data<float>(), Each(1.0F));
  EXPECT_EQ(layer.calls(), 2U);
}

TEST(Dropout, RepeatsItsMaskWhileStateIsHeld) {
  Dropout layer({.p = 0.5});
  layer.initialize(3);
  const Tensor x = Tensor::ones({1000});
  const Tensor held = [&] {
    const NoStateUpdate probe;
    return layer(x);
  }();
  EXPECT_EQ(layer.calls(), 0U);
  EXPECT_THAT(layer(x).data<float>(), ElementsAreArray(held.data<float>()));
  EXPECT_THROW((void)layer(Tensor::ones({2}, Dtype::I64)), ShapeError);
  EXPECT_EQ(layer.calls(), 1U);
}

TEST(Dropout, ClonesDrawTheMasksOfTheOriginal) {
  Sequential net;
  net.add<Dropout>("drop", {.p = 0.5});
  net.initialize(3);
  const Tensor x = Tensor::ones({1000});
  (void)net(x);
  const auto copy = clone(net);
  EXPECT_THAT((*copy)(x).data<float>(), ElementsAreArray(net(x).data<float>()));
}

TEST(Layers, PoolingAndSoftplusCheckTheirOptionsAndShowThem) {
  EXPECT_THROW(MaxPool2d({.kernel = 0}), Error);
  EXPECT_THROW(MaxPool2d({.kernel = 2, .padding = 2}), Error);
  EXPECT_THROW(MaxPool2d({.dilation = 0}), Error);
  EXPECT_THROW(AvgPool2d({.stride = -1}), Error);
  EXPECT_THROW(SoftplusLayer({.beta = 0}), Error);
  EXPECT_EQ(MaxPool2d({.dilation = 2, .ceil_mode = true}).describe(),
            "MaxPool2d(kernel=2x2, dilation=2x2, ceil_mode=true)");
  EXPECT_EQ(AvgPool2d({.count_include_pad = false}).describe(),
            "AvgPool2d(kernel=2x2, count_include_pad=false)");
}

}  // namespace
}  // namespace steady
