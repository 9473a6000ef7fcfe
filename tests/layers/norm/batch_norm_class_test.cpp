#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <steadygrad/core/data/batches.hpp>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/gradcheck.hpp>
#include <steadygrad/core/state_update.hpp>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/layers/sequential.hpp>
#include <tuple>

#include "tests/layers/norm/norm_testing.hpp"

// CASES group BN, every entry with numbers, for [N, C], [N, L, C] and [N, H, W, C], float32 and
// float64.

namespace steady {
namespace {

using namespace norm_testing;
using testing::AllOf;
using testing::HasSubstr;

class BatchNormClass : public testing::TestWithParam<std::tuple<int, Dtype>> {
 protected:
  const int rank = std::get<0>(GetParam());
  const Dtype dtype = std::get<1>(GetParam());
  const double tolerance = dtype == Dtype::F64 ? 1e-10 : 1e-5;

  /// `rows` rows of `channels` features in a shape of the rank under test.
  [[nodiscard]] Shape shape(std::int64_t rows, std::int64_t channels) const {
    const std::int64_t two = rows % 2 == 0 ? 2 : 1;
    if (rank == 2) return {rows, channels};
    if (rank == 3) return {rows / two, two, channels};
    return {1, two, rows / two, channels};
  }
  [[nodiscard]] Tensor data(std::int64_t channels, std::initializer_list<double> list) const {
    const auto rows = static_cast<std::int64_t>(list.size()) / channels;
    return Tensor::of(shape(rows, channels), list, dtype);
  }
  [[nodiscard]] Tensor vector(std::initializer_list<double> list) const {
    return Tensor::of({static_cast<std::int64_t>(list.size())}, list, dtype);
  }
  [[nodiscard]] Tensor random(std::int64_t rows, std::int64_t channels,
                              std::string_view name) const {
    return noise(shape(rows, channels), name).detached_copy(dtype);
  }

  void expect(const Tensor& got, const std::vector<double>& want) const {
    expect_values(got, want, tolerance);
  }
};

/// A norm in the dtype under test, with copies of its buffers to compare with.
struct Subject {
  Subject(const BatchNorm::Options& options, Dtype dtype) : norm(options) {
    norm.to(dtype);
    remember();
  }
  void remember() {
    mean = norm.running_mean.detached_copy();
    var = norm.running_var.detached_copy();
    counter = norm.num_batches_tracked.detached_copy();
  }
  void set(double new_mean, double new_var) {
    norm.running_mean.copy_from(Tensor::full(mean.shape(), new_mean, mean.dtype()));
    norm.running_var.copy_from(Tensor::full(var.shape(), new_var, var.dtype()));
    remember();
  }
  [[nodiscard]] bool unchanged() const {
    return same_bits(mean, norm.running_mean) && same_bits(var, norm.running_var) &&
           same_bits(counter, norm.num_batches_tracked);
  }
  BatchNorm norm;
  Tensor mean, var, counter;
};

TEST_P(BatchNormClass, NormalizesBiasedAndKeepsUnbiasedVariance) {  // CASES BN-01, BN-16
  Subject s({.features = 2}, dtype);
  expect(s.norm(data(2, {1, 10, 2, 20, 4, 40, 9, 90})),
         {-0.9733280145068077, -0.9733285216617936, -0.6488853430045385, -0.6488856811078624, 0, 0,
          1.6222133575113462, 1.6222142027696558});
  expect(s.norm.running_mean, {0.4, 4.0});
  expect(s.norm.running_var, {2.1666666666666665, 127.56666666666669});
}

TEST_P(BatchNormClass, MomentumWeighsTheNewBatch) {  // CASES BN-03
  const std::array<std::pair<double, double>, 2> table{{{0.1, 2.1666666666666665}, {0.9, 11.5}}};
  for (const auto& [momentum, variance] : table) {
    Subject s({.features = 1, .momentum = momentum}, dtype);
    (void)s.norm(data(1, {1, 2, 4, 9}));
    expect(s.norm.running_var, {variance});
  }
}

TEST_P(BatchNormClass, NeedsTwoValuesPerChannel) {  // CASES BN-04
  Subject s({.features = 1}, dtype);
  EXPECT_THROW((void)s.norm(data(1, {5})), ShapeError);
  EXPECT_TRUE(s.unchanged());
  expect(s.norm(data(1, {1, 3, 5, 7})),
         {-1.3416394448610998, -0.4472131482870333, 0.4472131482870333, 1.3416394448610998});
  expect(s.norm.running_mean, {0.4});
  expect(s.norm.running_var, {1.5666666666666669});
}

TEST_P(BatchNormClass, GoodBatchesAfterABadOneAreAsIfItNeverCame) {  // CASES BN-06
  constexpr double Nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor bad = data(2, {1, 2, 3, Nan, 5, 7});
  for (const bool check : {true, false}) {
    Subject s({.features = 2, .check_finite = check}, dtype), clean({.features = 2}, dtype);
    for (const char* name : {"a", "b", "c"}) (void)s.norm(random(6, 2, name));
    for (const char* name : {"a", "b", "c"}) (void)clean.norm(random(6, 2, name));
    if (check) {
      EXPECT_THROW((void)s.norm(bad), NonFiniteError);
    } else {
      (void)s.norm(bad);
      (void)clean.norm(data(2, {1, 2, 3, 4, 5, 7}));
    }
    (void)s.norm(random(6, 2, "d"));
    (void)clean.norm(random(6, 2, "d"));
    s.norm.eval();
    clean.norm.eval();
    const std::vector<double> got = values(s.norm(random(6, 2, "e")));
    const std::vector<double> want = values(clean.norm(random(6, 2, "e")));
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (check || i % 2 == 0) {
        EXPECT_EQ(got[i], want[i]) << i;
      } else {
        EXPECT_TRUE(std::isnan(got[i])) << i;
      }
    }
  }
}

TEST_P(BatchNormClass, OfAnEmptyBatchLearnsNothing) {  // CASES BN-07
  for (const bool train : {true, false}) {
    Subject s({.features = 3}, dtype);
    s.norm.train(train);
    const Tensor x = Tensor::zeros(shape(0, 3), dtype).set_requires_grad();
    Tensor y;
    const Gradients g = gradients([&] { return y = s.norm(x); }, Tensor::zeros(shape(0, 3), dtype));
    EXPECT_EQ(y.shape(), x.shape());
    EXPECT_EQ(g[x].shape(), x.shape());
    EXPECT_EQ(values(g[s.norm.weight]), (std::vector<double>{0, 0, 0}));
    EXPECT_EQ(values(g[s.norm.bias]), (std::vector<double>{0, 0, 0}));
    EXPECT_TRUE(s.unchanged());
  }
}

TEST_P(BatchNormClass, EvalBackwardTreatsStatisticsAsConstants) {  // CASES BN-08
  const Tensor x = data(2, {1, 2, 3, 5}).set_requires_grad();
  const Tensor w = vector({2, 0.5}).set_requires_grad(),
               b = vector({0.1, -0.2}).set_requires_grad();
  Tensor y;
  const Gradients g = gradients(
      [&] {
        return y = batch_norm_eval(x, vector({0.5, 1}), vector({4, 0.25}), w, b);
      },
      data(2, {1, -2, 0.5, 3}));
  expect(y, {0.5999993750011718, 0.79998000059998, 2.5999968750058593, 3.7999200023999196});
  expect(g[x], {0.9999987500023437, -1.9999600011999599, 0.49999937500117186, 2.99994000179994});
  expect(g[w], {0.8749989062520508, 19.999600011999597});
  expect(g[b], {1.5, 1.0});
}

TEST_P(BatchNormClass, TrainBackwardGivesAllThreeGradients) {  // CASES BN-09
  const Tensor x = data(2, {1, 2, 3, 5, 4, -1}).set_requires_grad();
  const Tensor w = vector({2, 0.5}).set_requires_grad(),
               b = vector({0.1, -0.2}).set_requires_grad();
  const Gradients g =
      gradients([&] { return batch_norm(x, w, b).y; }, data(2, {1, -2, 0.5, 3, -1, 0.25}));
  expect(g[x], {-0.28633997894058666, -0.4932996065610003, 0.8590491443758407, 0.2466502710638302,
                -0.5727091654352535, 0.24664933549717016});
  expect(g[w], {-2.271713254331882, 3.3680455896233816});
  expect(g[b], {0.5, 1.25});
}

TEST_P(BatchNormClass, SumsOfOutputsHaveAlmostNoGradient) {  // CASES BN-10
  const Tensor x = data(2, {1, 2, 3, 5, 4, -1}).set_requires_grad();
  const double rounding = dtype == Dtype::F64 ? 1e-15 : 1e-6;
  Tensor y;
  const Gradients ones =
      gradients([&] { return y = batch_norm(x).y; }, Tensor::ones(x.shape(), dtype));
  for (const double v : values(ones[x])) EXPECT_LT(std::abs(v), rounding);
  Tensor twice = y.detached_copy();  // the gradient of sum(y^2)
  dispatch_float("test", dtype, [&]<FloatElement T>() {
    for (T& v : twice.mutable_data<T>()) v *= T(2);
  });
  const std::vector<double> want{-1.3775333092399308e-05, 0,
                                 2.755066618284027e-06,   1.6666611109888907e-06,
                                 1.102026647349217e-05,   -1.6666611109888907e-06};
  const std::vector<double> got = values(gradients([&] { return batch_norm(x).y; }, twice)[x]);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(got[i], want[i], rounding) << i;
}

TEST_P(BatchNormClass, FrozenIsAStateThatTrainDoesNotEnd) {  // CASES BN-11
  Subject s({.features = 2}, dtype);
  s.set(2, 4);
  s.norm.freeze();
  s.norm.train(true);
  const Tensor x = random(6, 2, "shifted");
  EXPECT_TRUE(same_bits(s.norm(x), batch_norm_eval(x, s.mean, s.var, s.norm.weight, s.norm.bias)));
  EXPECT_TRUE(s.unchanged());
  s.norm.unfreeze();
  (void)s.norm(x);
  EXPECT_FALSE(s.unchanged());
}

TEST_P(BatchNormClass, ExtraForwardsDoNotUpdateAgain) {  // CASES BN-14, BN-19
  Subject s({.features = 1}, dtype);
  s.set(1, 1);
  const Tensor x = data(1, {4, 6});
  {
    const NoStateUpdate probe;
    (void)s.norm(x);
  }
  s.norm.eval();
  (void)s.norm(random(8, 1, "x"));
  EXPECT_TRUE(s.unchanged());
  s.norm.train();
  (void)s.norm(x);
  expect(s.norm.running_mean, {1.4});
  EXPECT_EQ(s.norm.num_batches_tracked.item(), 1);
}

TEST_P(BatchNormClass, EveryCallOwnsItsStatistics) {  // CASES BN-15
  Subject s({.features = 1}, dtype);
  s.norm.weight.copy_from(vector({1.5}));
  const Tensor xa = data(1, {0, 2, 7}).set_requires_grad();
  const Tensor xb = data(1, {100, 104, 101}).set_requires_grad();
  Tape tape;
  const std::array y{s.norm(xa), s.norm(xb)};
  s.norm.eval();
  (void)s.norm(random(6, 1, "other data"));
  const std::array dy{data(1, {1, -2, 0.5}), data(1, {0.3, 0.2, -1})};
  const Gradients g = tape.backward(y, dy);
  expect(g[xa], {0.6532363057649995, -0.9145309456534108, 0.2612946398884114});
  expect(g[xb], {0.5193293407958404, 0.17311042518229852, -0.692439765978138});
  expect(g[s.norm.weight], {0.7123029261163811});
  expect(g[s.norm.bias], {-1.0});
}

TEST_P(BatchNormClass, ModeIsNeverInferred) {  // CASES BN-19, BN-20
  Subject s({.features = 1}, dtype);
  s.set(2, 4);
  const Tensor ones = data(1, {1, 1, 1, 1, 1, 1, 1, 1});
  {
    const NoStateUpdate probe;
    EXPECT_EQ(values(s.norm(ones)), std::vector<double>(8, 0.0));
  }
  s.norm.eval();
  expect(s.norm(ones), std::vector<double>(8, -0.49999937500117186));
  s.set(2, 9);
  expect(s.norm(data(1, {5})), {0.9999994444449074});
  EXPECT_TRUE(s.unchanged());
  s.norm.train();
  EXPECT_THROW((void)s.norm(data(1, {5})), ShapeError);
}

TEST_P(BatchNormClass, KeepsDigitsFarFromZero) {  // CASES LN-02
  const Tensor x = Tensor::of(shape(4, 1), {1000.01, 1000.03, 1000.02, 1000.04});
  const BatchNormResult r = batch_norm(x.detached_copy(dtype));
  expect(r.y, {-1.2919627440363508, 0.4324066559424252, -0.4297780440469628, 1.2893341321513903});
  EXPECT_NEAR(r.moments[0].variance(), 0.0001247867476195097, 1e-14);
}

std::string name_of(const testing::TestParamInfo<std::tuple<int, Dtype>>& info) {
  return "rank_" + std::to_string(std::get<0>(info.param)) + "_" +
         std::string(to_string(std::get<1>(info.param)));
}

INSTANTIATE_TEST_SUITE_P(All, BatchNormClass,
                         testing::Combine(testing::Values(2, 3, 4),
                                          testing::Values(Dtype::F32, Dtype::F64)),
                         name_of);

/// Runs an epoch of 65 samples in batches of 64; the number of batches, or the error and where.
std::string epoch_of_65(Tail tail) {
  Sequential mlp;
  mlp.add<Linear>("fc", {.in = 3, .out = 4});
  mlp.add<BatchNorm>("norm", {.features = 4});
  mlp.initialize(1);
  const Dataset data{noise({65, 3}, "x").detached_copy(Dtype::F32),
                     Tensor::zeros({65}, Dtype::I64)};
  std::int64_t done = 0;
  for (const Batch& batch : batches(data, {.size = 64, .tail = tail})) {
    try {
      (void)mlp(batch.x);
    } catch (const ShapeError& error) {
      return "batch " + std::to_string(batch.index) + " " + error.what();
    }
    ++done;
  }
  return std::to_string(done);
}

TEST(BatchNorm, ALastBatchOfOneSampleNamesTheCure) {  // CASES BN-05
  EXPECT_THAT(epoch_of_65(Tail::Keep), AllOf(HasSubstr("batch 1 "), HasSubstr("in 'norm'"),
                                             HasSubstr("[1, 4]"), HasSubstr("drop or merge")));
  EXPECT_EQ(epoch_of_65(Tail::Drop), "1");
  EXPECT_EQ(epoch_of_65(Tail::Merge), "1");
}

TEST(BatchNorm, TrainingWithoutParameterGradientsMovesTheBuffersForTenSteps) {  // CASES BN-12
  Subject s({.features = 2}, Dtype::F64);
  s.norm.weight.set_requires_grad(false);
  s.norm.bias.set_requires_grad(false);
  const Tensor x = Tensor::of({4, 2}, {1, 10, 2, 20, 4, 40, 9, 90}, Dtype::F64);
  for (int i = 0; i < 10; ++i) (void)s.norm(x);
  const double left = std::pow(0.9, 10);
  expect_values(s.norm.running_mean, {4 * (1 - left), 40 * (1 - left)});
  s.norm.freeze();
  s.remember();
  for (int i = 0; i < 10; ++i) (void)s.norm(x);
  EXPECT_TRUE(s.unchanged());
}

}  // namespace
}  // namespace steady
