#include <gtest/gtest.h>

#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/embedding.hpp>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/norm/rms_norm.hpp>
#include <steadygrad/layers/norm/unit_sphere.hpp>

#include "tests/layers/norm/norm_testing.hpp"

namespace steady {
namespace {

using namespace norm_testing;

/// The lengths of a matrix' rows or columns.
std::vector<double> lengths(const Tensor& m, bool rows) {
  const auto n = static_cast<std::size_t>(m.dim(0)), k = static_cast<std::size_t>(m.dim(1));
  const std::vector<double> v = values(m);
  std::vector<double> result(rows ? n : k);
  for (std::size_t i = 0; i < n * k; ++i) result[rows ? i / k : i % k] += v[i] * v[i];
  for (double& l : result) l = std::sqrt(l);
  return result;
}

struct Model : Layer {
  Linear& up = add<Linear>("up", {.in = 5, .out = 7});
  Linear& down = add<Linear>("down", {.in = 7, .out = 5});
  RmsNorm& norm = add<RmsNorm>("norm", {.normalized_shape = {5}});
  Tensor forward(const Tensor& x) override { return norm(down(up(x))); }
};

TEST(UnitSphere, NormalizesTheChosenVectorsAndNothingElse) {
  Model model;
  model.initialize(1);
  const Tensor bias = model.up.bias.detached_copy();
  const std::int64_t count = normalize_weights(model, [](const Parameter& p) {
    return p.name == "down.weight" ? UnitVectors::Columns : UnitVectors::Rows;
  });
  EXPECT_EQ(count, 2);
  for (const double l : lengths(model.up.weight, true)) EXPECT_NEAR(l, 1, 1e-6);
  for (const double l : lengths(model.down.weight, false)) EXPECT_NEAR(l, 1, 1e-6);
  EXPECT_GT(std::abs(lengths(model.down.weight, true)[0] - 1), 1e-3);
  EXPECT_TRUE(same_bits(model.up.bias, bias));
  expect_values(model.norm.weight, {1, 1, 1, 1, 1});
}

TEST(UnitSphere, TakesRowsByDefaultAndLeavesZerosAlone) {
  Model model;
  model.initialize(1);
  model.up.weight.mutable_data<float>()[0] = 0;
  model.down.weight.copy_from(Tensor::zeros({5, 7}));
  EXPECT_EQ(normalize_weights(model), 2);
  for (const double l : lengths(model.up.weight, true)) EXPECT_NEAR(l, 1, 1e-6);
  for (const double v : values(model.down.weight)) EXPECT_EQ(v, 0);
  const Tensor before = model.up.weight.detached_copy();
  EXPECT_EQ(normalize_weights(model, [](const Parameter&) { return UnitVectors::None; }), 0);
  EXPECT_TRUE(same_bits(model.up.weight, before));
}

TEST(UnitSphere, RefusesAChoiceOfAnotherRankBeforeItChangesAny) {
  struct Odd : Model {
    Tensor& cube = add_parameter("cube", Tensor::ones({2, 2, 2}), Role::Weight);
  } odd;
  odd.initialize(1);
  const Tensor before = odd.up.weight.detached_copy();
  EXPECT_THROW((void)normalize_weights(odd, [](const Parameter&) { return UnitVectors::Rows; }),
               ShapeError);
  EXPECT_TRUE(same_bits(odd.up.weight, before));
  EXPECT_EQ(normalize_weights(odd), 2);
}

TEST(SphereUpdate, StepsAlongTheChordAndStaysOnTheSphere) {
  SphereUpdate update({.features = 2, .init = 0.25});
  const Tensor h = Tensor::of({1, 2}, {1, 0}), branch = Tensor::of({1, 2}, {0, 9});
  const double length = std::hypot(0.75, 0.25);
  expect_values(update(h, branch), {0.75 / length, 0.25 / length}, 1e-6);
  expect_values(update.alpha_weight, {std::sqrt(0.5), std::sqrt(0.5)}, 1e-7);
  update.alpha_weight.copy_from(Tensor::full({2}, -update.o.scale * 4));  // |.|: alpha 1
  expect_values(update(h, branch), {0, 1}, 1e-6);
}

TEST(SphereUpdate, RefusesWhatDoesNotFit) {
  EXPECT_THROW(SphereUpdate({}), Error);
  EXPECT_THROW(SphereUpdate({.features = 2, .init = 0}), Error);
  EXPECT_THROW(SphereUpdate({.features = 2, .scale = -1}), Error);
  SphereUpdate update({.features = 2});
  EXPECT_THROW((void)update(Tensor::ones({3, 2}), Tensor::ones({2})), ShapeError);
  EXPECT_THROW((void)update(Tensor::ones({3, 3}), Tensor::ones({3, 3})), ShapeError);
  EXPECT_THROW((void)update(Tensor::ones({3, 2}), {}), ShapeError);
  Layer& layer = update;
  EXPECT_THROW((void)layer(Tensor::ones({3, 2})), Error);
}

}  // namespace
}  // namespace steady
