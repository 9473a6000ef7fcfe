#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/filter_response_norm.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>

#include "tests/layers/norm/norm_testing.hpp"

namespace steady {
namespace {

using namespace norm_testing;
using testing::ElementsAre;

TEST(FilterResponseNorm, DividesByTheRootMeanSquareOverThePositions) {
  // Mean squares 25 and 2 in channel 0 and 1; eps 0.
  const Tensor x = Tensor::of({1, 2, 2}, {3, 0, std::sqrt(41), 2}, Dtype::F64);
  expect_values(filter_response_norm(x, {}, {}, {}, 0.0), {0.6, 0, std::sqrt(41) / 5, std::sqrt(2)},
                1e-14);
}

TEST(FilterResponseNorm, ASampleAndAChannelDependOnNoOther) {
  const Tensor x = noise({3, 4, 2}, "x", 1);
  Tensor other = x.detached_copy();
  for (std::size_t i = 8; i < 24; ++i) other.mutable_data<double>()[i] = 7;  // samples 1 and 2
  for (std::size_t i = 1; i < 8; i += 2) other.mutable_data<double>()[i] = 9;
  const std::vector<double> a = values(filter_response_norm(x));
  const std::vector<double> b = values(filter_response_norm(other));
  for (std::size_t i = 0; i < 8; i += 2) EXPECT_EQ(a[i], b[i]);
}

TEST(FilterResponseNorm, TheThresholdIsPerChannelAndTakesTheGradientBelowIt) {
  const Tensor x = leaf({1, 3, 2}, {-1, -1, 1, 1, 1, 1});
  const Tensor w = leaf({2}, {1, 1}), b = leaf({2}, {0, 0}), tau = leaf({2}, {-0.5, -2});
  const Tensor dy = Tensor::of({1, 3, 2}, {5, 7, 0, 0, 0, 0}, Dtype::F64);
  Tensor y;
  const Gradients g = gradients([&] { return y = filter_response_norm(x, w, b, tau, 0.0); }, dy);
  expect_values(y, {-0.5, -1, 1, 1, 1, 1}, 1e-14);
  EXPECT_THAT(values(g[tau]), ElementsAre(5, 0));
  EXPECT_THAT(values(g[b]), ElementsAre(0, 7));
}

TEST(FilterResponseNorm, TheSignOfALearnedEpsDoesNotMatter) {
  const Tensor x = noise({2, 3, 4}, "x");
  const Tensor plus = Tensor::of({1}, {0.3}, Dtype::F64);
  const Tensor minus = Tensor::of({1}, {-0.3}, Dtype::F64);
  EXPECT_TRUE(same_bits(filter_response_norm(x, {}, {}, {}, plus),
                        filter_response_norm(x, {}, {}, {}, minus)));
  EXPECT_TRUE(same_bits(filter_response_norm(x, {}, {}, {}, plus),
                        filter_response_norm(x, {}, {}, {}, 0.3)));
}

TEST(FilterResponseNorm, AtOnePositionItIsTheSignUnlessEpsIsLarge) {
  const Tensor x = Tensor::of({2, 2}, {0.01, -3, 5, -0.2}, Dtype::F64);
  expect_values(filter_response_norm(x, {}, {}, {}, 1e-12), {1, -1, 1, -1}, 1e-7);
}

TEST(FilterResponseNorm, ZerosGiveTheBiasAndFiniteGradients) {
  const Tensor x = Tensor::zeros({1, 4, 2}, Dtype::F64).set_requires_grad();
  const Tensor dy = Tensor::ones({1, 4, 2}, Dtype::F64);
  const Gradients g = gradients([&] { return filter_response_norm(x); }, dy);
  for (const double v : values(g[x])) EXPECT_NEAR(v, 1000, 1e-9);  // 1 / sqrt(1e-6)
}

TEST(FilterResponseNorm, LearnsWhatItsOptionsSay) {
  const auto names = [](const FilterResponseNorm& norm) {
    std::vector<std::string> result;
    for (const Parameter& p : norm.parameters()) result.push_back(p.name);
    return result;
  };
  EXPECT_THAT(names(FilterResponseNorm({.features = 3})), ElementsAre("weight", "bias", "tau"));
  EXPECT_THAT(names(FilterResponseNorm({.features = 3, .learn_eps = true, .tlu = false})),
              ElementsAre("weight", "bias", "eps"));
  FilterResponseNorm norm({.features = 3, .eps = 1e-4, .learn_eps = true});
  EXPECT_NEAR(values(norm.eps)[0], 1e-4, 1e-10);
  EXPECT_EQ(norm.describe(), "FilterResponseNorm(3, eps=0.0001 learned)");
  EXPECT_EQ(make_norm(NormSpec::parse("frn(tlu=false)"), 3)->describe(),
            "FilterResponseNorm(3, eps=1e-06, tlu=false)");
}

TEST(FilterResponseNorm, IsTheSameInEvalAndInACopy) {
  FilterResponseNorm norm({.features = 3, .learn_eps = true});
  norm.to(Dtype::F64);
  norm.tau.copy_from(noise({3}, "tau"));
  const Tensor x = noise({2, 4, 3}, "x");
  const Tensor y = norm(x);
  EXPECT_TRUE(same_bits((*clone(norm))(x), y));
  norm.eval();
  EXPECT_TRUE(same_bits(norm(x), y));
}

TEST(FilterResponseNorm, AnEmptyBatchGivesZeroGradients) {
  for (const Shape& shape : {Shape{0, 3, 2}, Shape{2, 0, 2}}) {
    const Tensor x = Tensor::empty(shape, Dtype::F64).set_requires_grad();
    const Tensor w = leaf({2}, {1, 2}), b = leaf({2}, {0, 0}), tau = leaf({2}, {0, 0});
    const Gradients g = gradients([&] { return filter_response_norm(x, w, b, tau); },
                                  Tensor::empty(shape, Dtype::F64));
    EXPECT_EQ(g[x].shape(), shape);
    EXPECT_THAT(values(g[w]), ElementsAre(0, 0));
    EXPECT_THAT(values(g[tau]), ElementsAre(0, 0));
  }
}

TEST(FilterResponseNorm, MeasuresWhatItNormalizes) {
  FilterResponseNorm norm({.features = 2, .eps = 0});
  std::map<std::string, double> measures;
  norm.measure(Tensor::of({1, 2, 2}, {1, 3, -1, -3}),
               [&](std::string_view name, double v) { measures[std::string(name)] = v; });
  EXPECT_NEAR(measures.at("normalized_mean"), 0, 1e-6);
  EXPECT_NEAR(measures.at("normalized_std"), 1, 1e-6);
}

TEST(FilterResponseNorm, RefusesBadOptionsAndShapes) {
  const Tensor x = noise({2, 3, 4}, "x");
  EXPECT_THROW(FilterResponseNorm({.features = 0}), Error);
  EXPECT_THROW(FilterResponseNorm({.features = 2, .eps = -1}), Error);
  EXPECT_THROW((void)filter_response_norm(x, noise({3}, "w")), ShapeError);
  EXPECT_THROW((void)filter_response_norm(x, {}, {}, noise({1}, "tau")), ShapeError);
  EXPECT_THROW((void)filter_response_norm(x, {}, {}, {}, noise({4}, "eps")), ShapeError);
  EXPECT_THROW((void)filter_response_norm(x, {}, {}, {}, Tensor()), ShapeError);
  EXPECT_THROW((void)filter_response_norm(x, {}, {}, {}, -0.1), Error);
  EXPECT_THROW((void)filter_response_norm(noise({4}, "x")), ShapeError);
}

}  // namespace
}  // namespace steady
