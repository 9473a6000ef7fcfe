#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/gradcheck.hpp>
#include <steadygrad/core/state_update.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>

#include "tests/layers/norm/norm_testing.hpp"

namespace steady {
namespace {

using namespace norm_testing;
using testing::AllOf;
using testing::HasSubstr;

constexpr double Nan = std::numeric_limits<double>::quiet_NaN();

/// A model with one norm in it.
struct Net : Layer {
  using Options = BatchNorm::Options;
  explicit Net(const Options& options) : o(options) {}
  const Options o;
  BatchNorm& norm = add<BatchNorm>("norm", o);
  Tensor forward(const Tensor& x) override { return norm(x); }
};

std::int64_t count(const BatchNorm& norm) {
  return norm.num_batches_tracked.data<std::int64_t>()[0];
}

/// Copies of the buffers, to compare with later.
struct Buffers {
  explicit Buffers(const BatchNorm& norm)
      : mean(norm.running_mean.detached_copy()),
        var(norm.running_var.detached_copy()),
        counter(norm.num_batches_tracked.detached_copy()) {}
  [[nodiscard]] bool unchanged(const BatchNorm& norm) const {
    return same_bits(mean, norm.running_mean) && same_bits(var, norm.running_var) &&
           same_bits(counter, norm.num_batches_tracked);
  }
  Tensor mean, var, counter;
};

void set(Tensor& target, std::initializer_list<double> list) {
  target.copy_from(Tensor::of(target.shape(), list, target.dtype()));
}

TEST(BatchNorm, KeepsTheUnbiasedVarianceOfEveryShapeAndDtype) {  // CASES BN-01, BN-16
  for (const Dtype dtype : {Dtype::F32, Dtype::F64}) {
    for (const Shape& shape :
         {Shape{4, 2}, Shape{2, 2, 2}, Shape{1, 2, 2, 2}, Shape{2, 1, 2, 1, 2}}) {
      BatchNorm norm({.features = 2});
      norm.to(dtype);
      const Tensor y = norm(Tensor::of(shape, {1, 10, 2, 20, 4, 40, 9, 90}, dtype));
      const double tolerance = dtype == Dtype::F32 ? 1e-6 : 1e-14;
      EXPECT_NEAR(values(y)[6], 1.6222133575113462, 1e-6);
      expect_values(norm.running_mean, {0.4, 4.0}, tolerance);
      expect_values(norm.running_var, {2.1666666666666665, 127.56666666666669}, tolerance);
      EXPECT_EQ(count(norm), 1);
    }
  }
}

TEST(BatchNorm, MomentumIsTheWeightOfTheNewBatch) {  // CASES BN-03
  const Tensor x = Tensor::of({4, 1}, {1, 2, 4, 9});
  BatchNorm norm({.features = 1, .momentum = 0.9});
  (void)norm(x);
  expect_values(norm.running_var, {11.5}, 1e-6);
  EXPECT_THAT(norm.describe(), HasSubstr("new batch weighs momentum=0.9"));
  for (const double momentum : {-0.1, 1.1, Nan}) {
    EXPECT_THROW(BatchNorm({.features = 1, .momentum = momentum}), Error);
  }
}

TEST(BatchNorm, CumulativeAverageCountsEveryBatchOnce) {
  BatchNorm norm({.features = 1, .momentum = std::nullopt});
  (void)norm(Tensor::of({2, 1}, {0, 2}));
  expect_values(norm.running_mean, {1}, 1e-7);
  expect_values(norm.running_var, {2}, 1e-7);
  (void)norm(Tensor::of({2, 1}, {4, 10}));
  (void)norm(Tensor::of({2, 1}, {1, 3}));
  expect_values(norm.running_mean, {(1 + 7 + 2) / 3.0}, 1e-6);
  expect_values(norm.running_var, {(2 + 18 + 2) / 3.0}, 1e-6);
  EXPECT_EQ(count(norm), 3);
  EXPECT_THAT(norm.describe(), HasSubstr("cumulative"));
}

TEST(BatchNorm, OneValuePerChannelThrowsBeforeABufferIsTouched) {  // CASES BN-04, BN-05, BN-19
  Net net({.features = 1});
  const Buffers before(net.norm);
  try {
    (void)net(Tensor::of({1, 1, 1, 1}, {5}));
    ADD_FAILURE() << "accepted";
  } catch (const ShapeError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("in 'norm'"), HasSubstr("[1, 1, 1, 1]"),
                                    HasSubstr("drop or merge")));
  }
  EXPECT_TRUE(before.unchanged(net.norm));
  (void)net(Tensor::of({1, 2, 2, 1}, {1, 3, 5, 7}));
  expect_values(net.norm.running_mean, {0.4}, 1e-6);
  expect_values(net.norm.running_var, {1.5666666666666669}, 1e-6);

  net.eval();
  set(net.norm.running_mean, {2});
  set(net.norm.running_var, {9});
  expect_values(net(Tensor::of({1, 1, 1, 1}, {5})), {0.9999994444449074}, 1e-7);
}

TEST(BatchNorm, ABatchThatIsNotFiniteChangesNothing) {  // CASES BN-06
  for (const double bad : {Nan, std::numeric_limits<double>::infinity()}) {
    Net net({.features = 2});
    for (int i = 0; i < 3; ++i) (void)net(noise({8, 2}, "good").detached_copy(Dtype::F32));
    const Buffers before(net.norm);
    const Tensor spoiled = Tensor::of({3, 2}, {1, 2, 3, bad, 5, 7});
    try {
      (void)net(spoiled);
      ADD_FAILURE() << "accepted";
    } catch (const NonFiniteError& error) {
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("in 'norm'"), HasSubstr("channel 1"), HasSubstr("step 4")));
    }
    EXPECT_TRUE(before.unchanged(net.norm));
  }
}

TEST(BatchNorm, WithoutTheCheckOnlyTheBadChannelIsSpoiled) {  // CASES BN-06
  BatchNorm norm({.features = 2, .check_finite = false});
  BatchNorm clean({.features = 2, .check_finite = false});
  (void)norm(Tensor::of({3, 2}, {1, 2, 3, Nan, 5, 7}));
  (void)clean(Tensor::of({3, 2}, {1, 2, 3, 4, 5, 7}));
  EXPECT_EQ(values(norm.running_mean)[0], values(clean.running_mean)[0]);
  EXPECT_EQ(values(norm.running_var)[0], values(clean.running_var)[0]);
  EXPECT_TRUE(std::isnan(values(norm.running_mean)[1]));
  EXPECT_TRUE(std::isnan(values(norm.running_var)[1]));
}

TEST(BatchNorm, AnEmptyBatchTeachesNothing) {  // CASES BN-07
  BatchNorm norm({.features = 3});
  const Buffers before(norm);
  const Tensor x = Tensor::zeros({0, 4, 4, 3}).set_requires_grad();
  Tape tape;
  const Tensor y = norm(x);
  const Gradients g = tape.backward(y, {.cotangent = Tensor::zeros({0, 4, 4, 3})});
  EXPECT_EQ(values(g[norm.weight]), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(values(g[norm.bias]), (std::vector<double>{0, 0, 0}));
  EXPECT_TRUE(before.unchanged(norm));
}

TEST(BatchNorm, BackwardHasTheModeOfItsForward) {  // CASES BN-08, BN-15
  const Tensor x = noise({4, 2}, "x").detached_copy(Dtype::F32).set_requires_grad();
  const Tensor other = noise({5, 2}, "other").detached_copy(Dtype::F32);
  const Tensor dy = noise({4, 2}, "dy").detached_copy(Dtype::F32);
  for (const bool train : {true, false}) {
    BatchNorm norm({.features = 2});
    norm.train(train);
    const Tensor want = gradients([&] { return norm(x); }, dy)[x].detached_copy();
    norm.initialize(1);
    norm.train(train);
    Tape tape;
    const Tensor y = norm(x);
    norm.train(!train);
    (void)norm(other);  // in the other mode, between forward and backward
    const Gradients g = tape.backward(y, {.cotangent = dy});
    EXPECT_TRUE(same_bits(g[x], want)) << (train ? "train" : "eval");
  }
}

TEST(BatchNorm, FrozenSurvivesTheParentsTrain) {  // CASES BN-11
  Net net({.features = 2});
  (void)net(noise({8, 2}, "x").detached_copy(Dtype::F32));
  net.norm.freeze();
  net.train(true);
  const Buffers before(net.norm);
  const Tensor x = noise({8, 2}, "shifted", 5).detached_copy(Dtype::F32);
  const Tensor y = net(x);
  EXPECT_TRUE(before.unchanged(net.norm));
  EXPECT_TRUE(same_bits(y, batch_norm_eval(x, net.norm.running_mean, net.norm.running_var,
                                           net.norm.weight, net.norm.bias)));
  EXPECT_FALSE(net.norm.weight.requires_grad());
  EXPECT_THAT(net.summary(), HasSubstr("frozen"));
  net.norm.unfreeze();
  (void)net(x);
  EXPECT_FALSE(before.unchanged(net.norm));
  EXPECT_EQ(net.norm.statistics(), "updating");
}

TEST(BatchNorm, ParametersWithoutGradientDoNotStopTheStatistics) {  // CASES BN-12
  BatchNorm norm({.features = 2});
  norm.weight.set_requires_grad(false);
  norm.bias.set_requires_grad(false);
  const Buffers before(norm);
  (void)norm(noise({8, 2}, "x").detached_copy(Dtype::F32));
  EXPECT_FALSE(before.unchanged(norm));
  EXPECT_EQ(norm.statistics(), "updating");
  norm.freeze();
  EXPECT_EQ(norm.statistics(), "frozen");
}

TEST(BatchNorm, OnlyTrainingStepsUpdate) {  // CASES BN-14
  BatchNorm norm({.features = 1});
  norm.to(Dtype::F64);
  set(norm.running_mean, {1});
  const Tensor x = Tensor::of({2, 1}, {4, 6}, Dtype::F64);
  const Buffers before(norm);
  Tensor probed;
  {
    const NoStateUpdate probe;
    probed = norm(x);
  }
  EXPECT_TRUE(before.unchanged(norm));
  const auto f = [&](std::span<const Tensor> in) { return norm(in[0]); };
  EXPECT_TRUE(gradcheck(f, {noise({4, 1}, "x").set_requires_grad()}).ok);
  EXPECT_TRUE(gradcheck_second(f, {noise({4, 1}, "x").set_requires_grad()}).ok);
  EXPECT_TRUE(before.unchanged(norm));

  EXPECT_TRUE(same_bits(norm(x), probed));
  expect_values(norm.running_mean, {1.4}, 1e-15);
  EXPECT_EQ(count(norm), 1);
  norm.eval();
  (void)norm(x);  // CASES BN-19
  EXPECT_EQ(count(norm), 1);
}

TEST(BatchNorm, StartsInTrainModeAndUsesStatisticsThatWereSet) {  // CASES BN-20
  BatchNorm norm({.features = 1});
  set(norm.running_mean, {2});
  set(norm.running_var, {4});
  const Tensor ones = Tensor::ones({8, 1});
  {
    const NoStateUpdate probe;
    expect_values(norm(ones), std::vector<double>(8, 0.0), 1e-15);
  }
  norm.eval();
  expect_values(norm(ones), std::vector<double>(8, -0.49999937500117186), 1e-7);
  EXPECT_THAT(norm.summary(), HasSubstr("eval"));
  norm.running_mean = Tensor::of({1}, {3});  // assignment keeps the registration
  EXPECT_EQ(find(norm.state(), "running_mean").item(), 3);
}

TEST(BatchNorm, WithoutTrackingEveryModeUsesTheBatch) {
  BatchNorm norm({.features = 2, .track_running_stats = false});
  EXPECT_FALSE(norm.running_mean.defined());
  EXPECT_EQ(norm.statistics(), "");
  const Tensor x = noise({8, 2}, "x").detached_copy(Dtype::F32);
  const Tensor y = norm(x);
  norm.eval();
  EXPECT_TRUE(same_bits(norm(x), y));
  norm.freeze();
  EXPECT_TRUE(same_bits(norm(x), y));
}

TEST(BatchNorm, NamesAndRolesItsState) {
  const BatchNorm norm({.features = 2});
  std::vector<std::string> names;
  for (const NamedTensor& t : norm.state()) names.push_back(t.name);
  EXPECT_THAT(names, testing::ElementsAre("weight", "bias", "running_mean", "running_var",
                                          "num_batches_tracked"));
  const std::vector<Parameter> parameters = norm.parameters();
  ASSERT_EQ(parameters.size(), 2U);
  EXPECT_EQ(parameters[0].role, Role::NormScale);
  EXPECT_EQ(parameters[1].role, Role::NormShift);
  EXPECT_EQ(BatchNorm({.features = 2, .bias = false}).parameters().size(), 1U);
  EXPECT_TRUE(BatchNorm({.features = 2, .affine = false}).parameters().empty());
  EXPECT_EQ(norm.num_batches_tracked.dtype(), Dtype::I64);
  EXPECT_EQ(norm.num_batches_tracked.rank(), 0);
}

TEST(BatchNorm, AStateWithoutTheCounterLoadsWhenAsked) {  // CASES BN-18
  BatchNorm source({.features = 2}), norm({.features = 2});
  (void)source(noise({8, 2}, "x").detached_copy(Dtype::F32));
  State old = source.state();
  std::erase_if(old, [](const NamedTensor& t) { return t.name == "num_batches_tracked"; });
  EXPECT_THROW(norm.load(old), Error);
  EXPECT_FALSE(same_bits(norm.running_mean, source.running_mean));
  const LoadReport report = norm.load(old, {.strict = false});
  EXPECT_THAT(report.missing, testing::ElementsAre("num_batches_tracked"));
  EXPECT_TRUE(same_bits(norm.running_mean, source.running_mean));
  EXPECT_EQ(count(norm), 0);
  BatchNorm untracked({.features = 2, .track_running_stats = false});
  EXPECT_THAT(untracked.load(source.state(), {.strict = false}).unexpected, testing::SizeIs(3));
}

TEST(BatchNorm, ClonesKeepParametersStatisticsAndMode) {
  BatchNorm norm({.features = 2});
  (void)norm(noise({8, 2}, "x").detached_copy(Dtype::F32));
  set(norm.weight, {2, 3});
  norm.freeze();
  const auto copy = clone(norm);
  EXPECT_TRUE(Buffers(norm).unchanged(*copy));
  EXPECT_TRUE(same_bits(copy->weight, norm.weight));
  EXPECT_FALSE(copy->running_mean.shares_storage_with(norm.running_mean));
  EXPECT_EQ(copy->mode(), Mode::Frozen);
}

TEST(BatchNorm, RefusesOtherShapesAndBadOptions) {  // CASES LN-16
  BatchNorm norm({.features = 2});
  const Buffers before(norm);
  EXPECT_THROW((void)norm(Tensor::ones({4, 3, 3, 3})), ShapeError);
  EXPECT_THROW((void)norm(Tensor::ones({2})), ShapeError);
  EXPECT_THROW((void)norm(Tensor::ones({4, 2}, Dtype::F64)), ShapeError);
  EXPECT_TRUE(before.unchanged(norm));
  EXPECT_THROW(BatchNorm({.features = 0}), Error);
  EXPECT_THROW(BatchNorm({.features = -1}), Error);
  EXPECT_THROW(BatchNorm({.features = 1, .eps = -1}), Error);
}

}  // namespace
}  // namespace steady
