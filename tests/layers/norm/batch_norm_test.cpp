#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/gradcheck.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>

#include "tests/layers/norm/norm_testing.hpp"

namespace steady {
namespace {

using namespace norm_testing;
using testing::AllOf;
using testing::HasSubstr;

TEST(BatchNormOp, NormalizesWithTheBiasedVariance) {  // CASES BN-01
  const Tensor x = Tensor::of({4, 2}, {1, 10, 2, 20, 4, 40, 9, 90}, Dtype::F64);
  const BatchNormResult r = batch_norm(x);
  expect_values(r.y, {-0.9733280145068077, -0.9733285216617936, -0.6488853430045385,
                      -0.6488856811078624, 0, 0, 1.6222133575113462, 1.6222142027696558});
  ASSERT_EQ(r.moments.size(), 2U);
  EXPECT_DOUBLE_EQ(r.moments[0].variance(), 9.5);
  EXPECT_DOUBLE_EQ(r.moments[0].unbiased_variance(), 12.666666666666666);
  EXPECT_DOUBLE_EQ(r.moments[1].mean, 40);
}

TEST(BatchNormOp, NeedsTwoValuesPerChannelNotTwoSamples) {  // CASES BN-04
  const Tensor one = Tensor::of({1, 1, 1, 1}, {5}, Dtype::F64);
  try {
    (void)batch_norm(one);
    ADD_FAILURE() << "one value per channel was accepted";
  } catch (const ShapeError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("batch_norm: "), HasSubstr("more than one value"),
                                    HasSubstr("x f64 [1, 1, 1, 1]")));
  }
  const Tensor x = Tensor::of({1, 2, 2, 1}, {1, 3, 5, 7}, Dtype::F64);
  expect_values(batch_norm(x).y,
                {-1.3416394448610998, -0.4472131482870333, 0.4472131482870333, 1.3416394448610998});
  const Tensor zero = Tensor::zeros({1}, Dtype::F64), var = Tensor::ones({1}, Dtype::F64);
  EXPECT_NO_THROW((void)batch_norm_eval(one, zero, var));
}

TEST(BatchNormOp, OfAnEmptyBatchHasZeroParameterGradients) {  // CASES BN-07
  for (const bool train : {true, false}) {
    const Tensor x = Tensor::zeros({0, 4, 4, 3}, Dtype::F64).set_requires_grad();
    const Tensor w = leaf({3}, {1, 2, 3});
    const Tensor b = leaf({3}, {0, 0, 0});
    const Tensor zero = Tensor::zeros({3}, Dtype::F64), var = Tensor::ones({3}, Dtype::F64);
    Tensor y;
    const Gradients g = gradients(
        [&] { return y = train ? batch_norm(x, w, b).y : batch_norm_eval(x, zero, var, w, b); },
        Tensor::zeros({0, 4, 4, 3}, Dtype::F64));
    EXPECT_EQ(y.shape(), x.shape());
    EXPECT_EQ(g[x].shape(), x.shape());
    EXPECT_EQ(values(g[w]), (std::vector<double>{0, 0, 0}));
    EXPECT_EQ(values(g[b]), (std::vector<double>{0, 0, 0}));
  }
}

TEST(BatchNormOp, EvalBackwardTreatsStatisticsAsConstants) {  // CASES BN-08
  const Tensor x = leaf({2, 2}, {1, 2, 3, 5});
  const Tensor w = leaf({2}, {2, 0.5});
  const Tensor b = leaf({2}, {0.1, -0.2});
  const Tensor mean = Tensor::of({2}, {0.5, 1}, Dtype::F64);
  const Tensor var = Tensor::of({2}, {4, 0.25}, Dtype::F64);
  Tensor y;
  const Gradients g = gradients([&] { return y = batch_norm_eval(x, mean, var, w, b); },
                                Tensor::of({2, 2}, {1, -2, 0.5, 3}, Dtype::F64));
  expect_values(y, {0.5999993750011718, 0.79998000059998, 2.5999968750058593, 3.7999200023999196});
  expect_values(g[x],
                {0.9999987500023437, -1.9999600011999599, 0.49999937500117186, 2.99994000179994});
  expect_values(g[w], {0.8749989062520508, 19.999600011999597});
  expect_values(g[b], {1.5, 1.0});
}

TEST(BatchNormOp, RefusesStatisticsThatWantAGradient) {
  const Tensor x = Tensor::ones({2, 2}), one = Tensor::ones({2});
  const Tensor mean = Tensor::zeros({2}).set_requires_grad();
  EXPECT_NO_THROW((void)batch_norm_eval(x, mean, one));  // nothing is recorded
  const Tape tape;
  EXPECT_THROW((void)batch_norm_eval(x, mean, one), Error);
  EXPECT_NO_THROW((void)batch_norm_eval(x, mean.detach(), one));
}

TEST(BatchNormOp, TrainBackwardGivesAllThreeGradients) {  // CASES BN-09
  const Tensor x = leaf({3, 2}, {1, 2, 3, 5, 4, -1});
  const Tensor w = leaf({2}, {2, 0.5});
  const Tensor b = leaf({2}, {0.1, -0.2});
  Tensor y;
  const Gradients g = gradients([&] { return y = batch_norm(x, w, b).y; },
                                Tensor::of({3, 2}, {1, -2, 0.5, 3, -1, 0.25}, Dtype::F64));
  expect_values(y, {-2.572603828625743, -0.2, 0.6345207657251493, 0.4123719253860693,
                    2.2380830629005954, -0.8123719253860695});
  expect_values(g[x], {-0.28633997894058666, -0.4932996065610003, 0.8590491443758407,
                       0.2466502710638302, -0.5727091654352535, 0.24664933549717016});
  expect_values(g[w], {-2.271713254331882, 3.3680455896233816});
  expect_values(g[b], {0.5, 1.25});
}

/// The whole backward by the textbook, in float64.
std::vector<double> reference_dx(const std::vector<double>& x, const std::vector<double>& dy,
                                 std::size_t channels, double eps) {
  const double n = double(x.size() / channels);
  std::vector<double> dx(x.size());
  for (std::size_t c = 0; c < channels; ++c) {
    double mean = 0, var = 0, s1 = 0, s2 = 0;
    for (std::size_t i = c; i < x.size(); i += channels) mean += x[i] / n;
    for (std::size_t i = c; i < x.size(); i += channels) var += (x[i] - mean) * (x[i] - mean) / n;
    const double rstd = 1 / std::sqrt(var + eps);
    for (std::size_t i = c; i < x.size(); i += channels) {
      s1 += dy[i] / n;
      s2 += dy[i] * (x[i] - mean) * rstd / n;
    }
    for (std::size_t i = c; i < x.size(); i += channels) {
      dx[i] = rstd * (dy[i] - s1 - (x[i] - mean) * rstd * s2);
    }
  }
  return dx;
}

TEST(BatchNormOp, BackwardIsRightForManyRows) {  // CASES BN-09: N = 1025, and H = W = 147
  for (const Shape& shape : {Shape{1025, 2}, Shape{1, 147, 147, 2}}) {
    Tensor x = noise(shape, "x", 3).set_requires_grad();
    const Tensor dy = noise(shape, "dy");
    const std::vector<double> want = reference_dx(values(x), values(dy), 2, 1e-5);
    const Gradients wide = gradients([&] { return batch_norm(x).y; }, dy);
    expect_values(wide[x], want, 1e-12);
    Tensor narrow = x.detached_copy(Dtype::F32).set_requires_grad();
    const Gradients g =
        gradients([&] { return batch_norm(narrow).y; }, dy.detached_copy(Dtype::F32));
    expect_values(g[narrow], want, 1e-6);
  }
}

TEST(BatchNormOp, SumsOfOutputsSayNothingButGradcheckStillSees) {  // CASES BN-10
  const Tensor x = leaf({3, 2}, {1, 2, 3, 5, 4, -1});
  const Tensor w = leaf({2}, {2, 0.5});
  const Gradients ones =
      gradients([&] { return batch_norm(x, w).y; }, Tensor::ones({3, 2}, Dtype::F64));
  for (const double v : values(ones[x])) EXPECT_LT(std::abs(v), 1e-15);

  const auto right = [](std::span<const Tensor> in) { return batch_norm(in[0], in[1]).y; };
  EXPECT_TRUE(gradcheck(right, {x, w}).ok);
  const auto wrong = [](std::span<const Tensor> in) {
    const Tensor y = batch_norm(in[0], in[1]).y;
    return record("scaled", y.detached_copy(), {y}, {}, [](BackwardCall& call) {
      Tensor scaled = call.grad().detached_copy();
      for (double& v : scaled.mutable_data<double>()) v *= 1.1;
      call.give(0, scaled);
    });
  };
  EXPECT_FALSE(gradcheck(wrong, {x, w}).ok);
}

TEST(BatchNormOp, EveryCallOwnsItsStatistics) {  // CASES BN-15
  const Tensor xa = leaf({3, 1}, {0, 2, 7}), xb = leaf({3, 1}, {100, 104, 101});
  const Tensor w = leaf({1}, {1.5}), b = leaf({1}, {0});
  Tape tape;
  const std::array y{batch_norm(xa, w, b).y, batch_norm(xb, w, b).y};
  const std::array dy{Tensor::of({3, 1}, {1, -2, 0.5}, Dtype::F64),
                      Tensor::of({3, 1}, {0.3, 0.2, -1}, Dtype::F64)};
  const Gradients g = tape.backward(y, dy);
  expect_values(g[xa], {0.6532363057649995, -0.9145309456534108, 0.2612946398884114});
  expect_values(g[xb], {0.5193293407958404, 0.17311042518229852, -0.692439765978138});
  expect_values(g[w], {0.7123029261163811});
  expect_values(g[b], {-1.0});
}

TEST(BatchNormOp, KeepsDigitsFarFromZero) {  // CASES LN-02
  const Tensor x = Tensor::of({4, 1}, {1000.01, 1000.03, 1000.02, 1000.04});
  const BatchNormResult r = batch_norm(x);
  expect_values(r.y,
                {-1.2919627440363508, 0.4324066559424252, -0.4297780440469628, 1.2893341321513903},
                1e-5);
  EXPECT_NEAR(r.moments[0].variance(), 0.0001247867476195097, 1e-14);
}

TEST(BatchNormOp, OfAnImageFeatureLast) {                          // CASES LN-15
  const auto image = [](const std::function<double(double)>& f) {  // value number NCHW, in NHWC
    return generate({2, 2, 2, 3}, [&](double k) {
      const double n = std::floor(k / 12), c = std::fmod(k, 3), hw = std::floor(k / 3) - 4 * n;
      return f(12 * n + 4 * c + hw);
    });
  };
  Tensor x = image([](double k) { return std::cos(0.7 * k); });
  x.set_requires_grad();
  const Tensor dy = image([](double k) { return std::sin(0.3 * k); });
  const Tensor w = leaf({3}, {1, 2, 0.5}), b = leaf({3}, {0, 0, 0});
  const Gradients g = gradients([&] { return batch_norm(x, w, b).y; }, dy);
  expect_values(g[w], {2.650379686885964, -5.892806876979884, 0.09233906101320427});
  expect_values(g[b], {-1.3359029028736529, 0.5211617487811515, 1.713596904888601});
  expect_values(Tensor::from<double>({3}, g[x].data<double>().first(3)),
                {-0.5686134722865915, -0.4389660529545274, 0.30898448796399053});
}

TEST(BatchNormOp, TakesParametersOfExactlyOneElementPerChannel) {  // CASES LN-16
  const Tensor x = Tensor::ones({5, 4, 4, 3});
  for (const Shape& shape : {Shape{1}, Shape{2}, Shape{4}, Shape{1, 3}, Shape{}}) {
    const Tensor p = Tensor::ones(shape), ok = Tensor::ones({3});
    EXPECT_THROW((void)batch_norm(x, p), ShapeError);
    EXPECT_THROW((void)batch_norm(x, {}, p), ShapeError);
    EXPECT_THROW((void)batch_norm_eval(x, p, ok), ShapeError);
    EXPECT_THROW((void)batch_norm_eval(x, ok, p), ShapeError);
  }
  EXPECT_THROW((void)batch_norm(Tensor::ones({3})), ShapeError);
  EXPECT_THROW((void)batch_norm(Tensor::ones({3, 0})), ShapeError);
  EXPECT_THROW((void)batch_norm(Tensor::ones({3, 2}, Dtype::I32)), ShapeError);
  EXPECT_THROW((void)batch_norm(x, {}, {}, -1.0), Error);
  EXPECT_THROW((void)batch_norm_eval(x, {}, Tensor::ones({3})), ShapeError);
}

TEST(BatchNormOp, RefusesAThirdDerivativeByName) {  // CASES LN-18
  const Tensor mean = Tensor::zeros({1}, Dtype::F64), var = Tensor::ones({1}, Dtype::F64);
  const Tensor w = leaf({1}, {2});
  for (const bool train : {true, false}) {
    const Tensor x = leaf({3, 1}, {1, 2, 4});
    const Tensor v = Tensor::of({3, 1}, {1, 0.5, -2}, Dtype::F64);
    Tape tape;
    const Tensor y = train ? batch_norm(x, w).y : batch_norm_eval(x, mean, var, w);
    const Gradients first = tape.backward(y, {.record = true, .cotangent = v});
    const Gradients second = tape.backward(first[x], {.record = true, .cotangent = v});
    const Tensor& g = second[w];
    try {
      (void)tape.backward(g, {.cotangent = Tensor::ones({1}, Dtype::F64)});
      ADD_FAILURE() << "a third derivative came back";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("batch_norm_double_backward"));
    }
  }
}

}  // namespace
}  // namespace steady
