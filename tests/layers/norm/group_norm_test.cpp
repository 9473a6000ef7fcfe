#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/layers/norm/group_norm.hpp>
#include <steadygrad/layers/norm/layer_norm.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>

#include "tests/layers/norm/norm_testing.hpp"
#include "tests/support/golden.hpp"

namespace steady {
namespace {

using namespace norm_testing;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::nchw_to_nhwc;
using testing_support::nhwc_to_nchw;

std::string fault(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(GroupNorm, AgreesWithReferenceValuesOverAnAxisOfExtentOne) {  // CASES LN-14
  const auto channels_first = [](const std::function<double(double)>& f) {
    return nchw_to_nhwc(generate({2, 4, 2, 1}, f));
  };
  const Tensor x = channels_first([](double k) { return std::sin(0.61 * k); }).set_requires_grad();
  const Tensor dy = channels_first([](double k) { return std::cos(0.33 * k); });
  const Tensor w = leaf({4}, {1, 2, -1, 0.5}), b = leaf({4}, {0, 0.1, 0.2, 0.3});
  const Gradients g = gradients([&] { return group_norm(x, 2, w, b); }, dy);
  expect_values(g[w], {-0.05126480, -0.49286371, -0.43395977, 0.66480608}, 1e-8);
  const std::vector<double> dx = values(nhwc_to_nchw(g[x]));
  expect_values(generate({8}, [&](double k) { return dx[std::size_t(k) + 8]; }),
                {0.11181468, 0.29185674, -0.81403526, 0.41036385, 1.18817281, -0.05353442,
                 -1.31646777, 0.18182938},
                1e-8);
}

TEST(GroupNorm, TakesChannelsWithoutPositions) {  // CASES LN-14
  const Tensor x = noise({3, 1, 1, 6}, "x"), w = noise({6}, "w");
  const Tensor flat = reshape(x, {3, 6});
  const Tensor y = group_norm(x, 2, w);
  EXPECT_EQ(y.shape(), x.shape());
  EXPECT_EQ(values(y), values(group_norm(flat, 2, w)));
}

TEST(GroupNorm, WithOneGroupIsLayerNormOfTheSample) {
  const Tensor x = noise({3, 4, 5, 6}, "x", 2), w = noise({6}, "w"), b = noise({6}, "b");
  expect_values(group_norm(x, 1, w, b), values(layer_norm_over_sample(x, w, b)), 1e-13);
}

TEST(GroupNorm, GivesEveryGroupOfEverySampleMeanZeroAndVarianceOne) {
  const Tensor x = noise({2, 9, 6}, "x", 5, 3);
  const std::vector<double> y = values(group_norm(x, 3, {}, {}, 0));
  for (std::size_t set = 0; set < 6; ++set) {
    double mean = 0, square = 0;
    for (std::size_t i = 0; i < 18; ++i) {
      const double v = y[set / 3 * 54 + i / 2 * 6 + set % 3 * 2 + i % 2];
      mean += v / 18;
      square += v * v / 18;
    }
    EXPECT_NEAR(mean, 0, 1e-14);
    EXPECT_NEAR(square, 1, 1e-13);
  }
}

TEST(GroupNorm, AnEmptyBatchGivesZeroGradients) {
  for (const Shape& shape : {Shape{0, 3, 3, 4}, Shape{2, 0, 4}}) {
    const Tensor x = Tensor::empty(shape, Dtype::F64).set_requires_grad();
    const Tensor w = leaf({4}, {1, 2, 3, 4}), b = leaf({4}, {0, 0, 0, 0});
    const Gradients g =
        gradients([&] { return group_norm(x, 2, w, b); }, Tensor::empty(shape, Dtype::F64));
    EXPECT_EQ(g[x].shape(), shape);
    EXPECT_THAT(values(g[w]), ElementsAre(0, 0, 0, 0));
    EXPECT_THAT(values(g[b]), ElementsAre(0, 0, 0, 0));
  }
}

TEST(GroupNorm, ErrorsNameWhatIsWrong) {
  const Tensor x = noise({2, 3, 6}, "x");
  EXPECT_THAT(fault([&] { (void)group_norm(x, 4); }),
              AllOf(HasSubstr("group_norm"), HasSubstr("4 groups"), HasSubstr("6 channels")));
  EXPECT_THROW((void)group_norm(x, 0), ShapeError);
  EXPECT_THROW((void)group_norm(noise({6}, "x"), 2), ShapeError);
  EXPECT_THROW((void)group_norm(Tensor(), 2), ShapeError);
  EXPECT_THROW((void)group_norm(noise({2, 6}, "x"), 6), ShapeError);
  EXPECT_THAT(fault([&] { (void)group_norm(x, 2, noise({3}, "w")); }), HasSubstr("weight"));
  EXPECT_THAT(fault([&] { (void)group_norm(x, 2, {}, noise({3}, "b")); }), HasSubstr("bias"));
  EXPECT_THROW((void)group_norm(x, 2, noise({6}, "w").detached_copy(Dtype::F32)), ShapeError);
  EXPECT_THROW((void)group_norm(x, 2, {}, {}, -1), Error);
}

TEST(GroupNorm, RefusesOptionsThatFitNoWidth) {
  EXPECT_THAT(fault([] { (void)GroupNorm({.features = 48}); }),
              HasSubstr("GroupNorm: 32 groups do not divide 48 features"));
  EXPECT_THAT(fault([] { (void)make_norm(NormSpec::parse("group(groups=5)"), 12); }),
              HasSubstr("5 groups do not divide 12 features"));
  EXPECT_THAT(fault([] { (void)make_norm(NormSpec::parse("group(groups=2.5)"), 12); }),
              HasSubstr("groups must be a whole number; got 2.5"));
  EXPECT_THROW((void)NormSpec::parse("group(groups=0)"), Error);
  EXPECT_THROW(GroupNorm({.features = 0, .groups = 1}), Error);
  EXPECT_THROW(GroupNorm({.features = 4, .groups = 0}), Error);
  EXPECT_THROW(GroupNorm({.features = 4, .groups = 2, .eps = -1e-5}), Error);
}

TEST(GroupNorm, TheModuleIsTheOperationWithItsParameters) {
  GroupNorm norm({.features = 6, .groups = 3, .eps = 0.1});
  EXPECT_EQ(norm.describe(), "GroupNorm(6, groups=3, eps=0.1)");
  ASSERT_EQ(norm.state().size(), 2U);
  EXPECT_EQ(norm.state().at(0).name, "weight");
  EXPECT_EQ(norm.state().at(1).name, "bias");
  norm.to(Dtype::F64);
  norm.weight.copy_from(noise({6}, "w"));
  norm.bias.copy_from(noise({6}, "b"));
  const Tensor x = noise({2, 5, 6}, "x");
  const Tensor y = norm(x);
  EXPECT_EQ(values(y), values(group_norm(x, 3, norm.weight, norm.bias, 0.1)));
  norm.eval();
  EXPECT_TRUE(same_bits(norm(x), y));
  EXPECT_TRUE(same_bits((*clone(norm))(x), y));
  EXPECT_THAT(fault([&] {
                (void)norm(noise({2, 5}, "x"));
              }),
              AllOf(HasSubstr("GroupNorm"), HasSubstr("[..., 6]")));
}

TEST(GroupNorm, LearnsWhatItsOptionsSay) {
  EXPECT_TRUE(GroupNorm({.features = 4, .groups = 2, .affine = false}).parameters().empty());
  const GroupNorm weight({.features = 4, .groups = 2, .bias = false});
  ASSERT_EQ(weight.parameters().size(), 1U);
  EXPECT_EQ(weight.parameters().at(0).role, Role::NormScale);
  EXPECT_THAT(weight.describe(), HasSubstr("bias=false"));
}

TEST(GroupNorm, MeasuresTheRangeOfItsStatistics) {
  GroupNorm norm({.features = 4, .groups = 2, .eps = 0});
  norm.to(Dtype::F64);
  std::map<std::string, double> measures;
  // Deviations 1 in one group, 2 in the other.
  norm.measure(Tensor::of({1, 2, 4}, {0, 2, 0, 4, 2, 0, 4, 0}, Dtype::F64),
               [&](std::string_view name, double v) { measures[std::string(name)] = v; });
  EXPECT_NEAR(measures.at("rstd_max"), 1, 1e-15);
  EXPECT_NEAR(measures.at("rstd_min"), 0.5, 1e-15);
  EXPECT_NEAR(measures.at("normalized_mean"), 0, 1e-15);
  EXPECT_NEAR(measures.at("normalized_std"), 1, 1e-15);
}

}  // namespace
}  // namespace steady
