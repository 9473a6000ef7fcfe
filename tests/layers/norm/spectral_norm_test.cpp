#include <steadygrad/layers/norm/spectral_norm.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/matmul.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/state_update.hpp>
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
    "SpectralNorm", {
                        {.name = "matrix",
                         .f = [](Inputs in) { return spectral_norm(in[0], in[1], in[2]); },
                         .inputs = {real({3, 4}, 0.5, 2), real({3}, 0.5, 1).constant(),
                                    real({4}, 0.5, 1).constant()},
                         .large = {real({300, 257}, 0.5, 2), real({300}, 0.5, 1).constant(),
                                   real({257}, 0.5, 1).constant()}},
                        {.name = "kernels",
                         .f = [](Inputs in) { return spectral_norm(in[0], in[1], in[2]); },
                         .inputs = {real({2, 3, 2, 1}, 0.5, 2), real({2}, 0.5, 1).constant(),
                                    real({6}, 0.5, 1).constant()}},
                    });

TEST(SpectralNormGolden, EveryCase) {
  for (const GoldenCase& c : Golden("norms.h5").cases("spectral_norm")) {
    const bool training = c.attribute_int("training") == 1;
    const auto iterations = static_cast<int>(c.attribute_int("n_power_iterations"));
    const auto vectors = [&](const Tensor& weight) {
      const Tensor u = c.tensor("state_before/u").detached_copy(weight.dtype());
      const Tensor v = c.tensor("state_before/v").detached_copy(weight.dtype());
      return training ? power_iteration(weight, u, v, iterations, c.attribute_double("eps", 1e-12))
                      : std::pair(u, v);
    };
    expect_golden(c, [&](GoldenInputs& in) {
      const auto [u, v] = vectors(in.at("weight_orig"));
      expect_close(u, c, "state_after/u");
      expect_close(v, c, "state_after/v");
      return spectral_norm(in.at("weight_orig"), u, v);
    });
  }
}

/// The same through the module, whose buffers are PyTorch's weight_u and weight_v.
TEST(SpectralNormGolden, ModuleKeepsPyTorchsState) {
  for (const GoldenCase& c : Golden("norms.h5").cases("spectral_norm")) {
    if (c.tensor("param/weight_orig").rank() != 2) continue;
    const Tensor w = c.tensor("param/weight_orig");
    SpectralNorm<Linear> layer(
        {.inner = {.in = w.dim(1), .out = w.dim(0), .bias = false},
         .iterations = static_cast<int>(c.attribute_int("n_power_iterations"))});
    layer.to(Dtype::F64);
    layer.load({{"weight_orig", w},
                {"weight_u", c.tensor("state_before/u")},
                {"weight_v", c.tensor("state_before/v")}});
    layer.train(c.attribute_int("training") == 1);
    const Tensor x = noise({2, w.dim(1)}, "x");
    const Tensor y = layer(x);
    expect_close(layer.weight_u, c, "state_after/u");
    expect_close(layer.weight_v, c, "state_after/v");
    expect_close(y, matmul(x, c.tensor("out/weight"), {.transpose_b = true}));
  }
}

/// Singular values 3, 1, 0.5 between a rotation and a reflection.
Tensor known_matrix() {
  const double c = std::cos(0.7), s = std::sin(0.7);
  const Tensor left = Tensor::of({3, 3}, {c, -s, 0, s, c, 0, 0, 0, 1}, Dtype::F64);
  const Tensor middle = Tensor::of({3, 3}, {3, 0, 0, 0, 1, 0, 0, 0, 0.5}, Dtype::F64);
  const Tensor right = Tensor::of({3, 3}, {1, 0, 0, 0, s, c, 0, c, -s}, Dtype::F64);
  return matmul(matmul(left, middle), right);
}

/// A model of one wrapped Linear, in float64.
struct Model {
  Sequential net;
  SpectralNorm<Linear>& layer;
  explicit Model(const Tensor& weight)
      : layer(net.add<SpectralNorm<Linear>>(
            "fc", {.inner = {.in = weight.dim(1), .out = weight.dim(0)}})) {
    net.initialize(2);
    net.to(Dtype::F64);
    layer.weight_orig.copy_from(weight);
  }
  [[nodiscard]] std::vector<double> buffers() const {
    std::vector<double> all = values(layer.weight_u);
    for (const double v : values(layer.weight_v)) all.push_back(v);
    return all;
  }
};

TEST(SpectralNorm, FindsTheLargestSingularValue) {
  Model m(known_matrix());
  const Tensor x = noise({2, 3}, "x");
  for (int i = 0; i < 20; ++i) (void)m.net(x);
  double sigma = 0;
  m.layer.measure(x, [&](std::string_view name, double value) {
    EXPECT_EQ(name, "sigma");
    sigma = value;
  });
  EXPECT_NEAR(sigma, 3, 1e-12);
  expect_values(m.layer.weight(), values(known_matrix() / 3.0), 1e-12);
}

TEST(SpectralNorm, IsNearTheTruthBeforeTheFirstStep) {
  SpectralNorm<Linear> layer({.inner = {.in = 32, .out = 16}});
  layer.initialize(4);
  layer.to(Dtype::F64);
  const Tensor start = layer.weight();
  const auto [u, v] = power_iteration(layer.weight_orig, layer.weight_u, layer.weight_v, 500);
  const Tensor limit = spectral_norm(layer.weight_orig, u, v);
  expect_values(start, values(limit), 0.02);
}

TEST(SpectralNorm, EvalFrozenAndProbesDoNotIterate) {
  Model m(known_matrix());
  const Tensor x = noise({2, 3}, "x");
  const std::vector<double> before = m.buffers();
  m.net.eval();
  const Tensor y = m.net(x);
  EXPECT_EQ(m.buffers(), before);
  EXPECT_TRUE(same_bits(y, m.net(x)));  // the function stands still
  m.net.freeze();
  (void)m.net(x);
  m.net.train();
  (void)m.net(x);
  EXPECT_EQ(m.buffers(), before);
  EXPECT_EQ(m.layer.statistics(), "frozen");
  m.net.unfreeze();
  EXPECT_EQ(m.layer.statistics(), "updating");
  {
    const NoStateUpdate probe;
    (void)m.net(x);
    EXPECT_EQ(m.buffers(), before);
  }
  (void)m.net(x);
  EXPECT_NE(m.buffers(), before);
}

TEST(SpectralNorm, TwoForwardsBeforeOneBackwardKeepTheirOwnVectors) {
  Model m(known_matrix());
  const Tensor real_x = noise({2, 3}, "real"), fake_x = noise({2, 3}, "fake");
  const Tensor dy = noise({2, 3}, "dy");
  Tensor expected;
  {
    const auto [u1, v1] =
        power_iteration(m.layer.weight_orig, m.layer.weight_u, m.layer.weight_v, 1);
    const auto [u2, v2] = power_iteration(m.layer.weight_orig, u1, v1, 1);
    Tape tape;
    const Tensor first = linear(real_x, spectral_norm(m.layer.weight_orig, u1, v1), m.layer.bias);
    const Tensor second = linear(fake_x, spectral_norm(m.layer.weight_orig, u2, v2), m.layer.bias);
    expected = tape.backward(first - second, {.cotangent = dy})[m.layer.weight_orig];
  }
  Tape tape;
  const Tensor first = m.net(real_x);
  const Tensor second = m.net(fake_x);
  const Gradients g = tape.backward(first - second, {.cotangent = dy});
  expect_values(g[m.layer.weight_orig], values(expected), 1e-13);
}

TEST(SpectralNorm, ScaleOfTheWeightChangesNothing) {
  Model m(known_matrix());
  m.net.eval();
  const Tensor x = noise({2, 3}, "x");
  const Tensor y = m.net(x);
  m.layer.weight_orig.copy_from(known_matrix() * 250.0);
  expect_values(m.net(x), values(y), 1e-14);
}

TEST(SpectralNorm, ABadWeightThrowsAndKeepsTheVectors) {
  Model m(known_matrix());
  const Tensor x = noise({2, 3}, "x");
  const std::vector<double> before = m.buffers();
  m.layer.weight_orig.mutable_data<double>()[4] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(message_of([&] { (void)m.net(x); }), HasSubstr("in 'fc': SpectralNorm: a power"));
  EXPECT_EQ(m.buffers(), before);
  m.layer.weight_orig.copy_from(Tensor::zeros({3, 3}, Dtype::F64));
  EXPECT_THAT(message_of([&] { (void)m.net(x); }), HasSubstr("sigma is 0"));
}

TEST(SpectralNorm, HasTheStateOfPyTorchAndClones) {
  Sequential net;
  auto& conv = net.add<SpectralNorm<Conv2d>>(
      "conv", {.inner = {.in = 4, .out = 6, .kernel = 3, .padding = 1, .groups = 2}});
  net.initialize(1);
  const State state = net.state();
  EXPECT_EQ(find(state, "conv.weight_orig").shape(), (Shape{6, 2, 3, 3}));
  EXPECT_EQ(find(state, "conv.weight_u").shape(), (Shape{6}));
  EXPECT_EQ(find(state, "conv.weight_v").shape(), (Shape{18}));
  EXPECT_EQ(net.parameters().size(), 2U);
  const Tensor x = noise({1, 4, 4, 4}, "x").detached_copy(Dtype::F32);
  const auto copy = clone(net);
  EXPECT_TRUE(same_bits((*copy)(x), net(x)));
  Conv2d plain(conv.o.inner);
  plain.load({{"weight", conv.weight()}, {"bias", conv.bias}});
  net.eval();
  EXPECT_TRUE(same_bits(net(x), plain(x)));
}

TEST(SpectralNorm, RefusesOptionsAndShapesThatDoNotFit) {
  using Options = SpectralNorm<Linear>::Options;
  EXPECT_THROW(SpectralNorm<Linear>(Options{.inner = {.in = 2, .out = 2}, .iterations = 0}), Error);
  EXPECT_THROW(SpectralNorm<Linear>(Options{.inner = {.in = 2, .out = 2}, .eps = 0}), Error);
  const Tensor w = noise({3, 4}, "w"), u = noise({3}, "u"), v = noise({4}, "v");
  EXPECT_THROW((void)spectral_norm(w, v, u), ShapeError);
  EXPECT_THROW((void)spectral_norm(w, u, v.detached_copy(Dtype::F32)), ShapeError);
  EXPECT_EQ(SpectralNorm<Linear>(Options{.inner = {.in = 2, .out = 3}}).describe(),
            "SpectralNorm(Linear(2, 3), iterations=1)");
}

}  // namespace
}  // namespace steady
