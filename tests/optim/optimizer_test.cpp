#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/optim/clip.hpp>
#include <steadygrad/optim/sgd.hpp>

#include "tests/optim/leaves.hpp"
#include "tests/support/message_of.hpp"

namespace steady {
namespace {

using testing_support::leaf;
using testing_support::message_of;
using testing_support::one_gradient;

using testing::AllOf;
using testing::HasSubstr;

TEST(Sgd, DecaysWithoutMomentumToo) {  // CASES OP-06
  const Tensor w = leaf({2});
  Sgd sgd({{"w", w, Role::Weight}}, {.lr = 0.1, .weight_decay = 0.5});
  sgd.step(one_gradient(w, {0}));
  EXPECT_DOUBLE_EQ(w.item(), 1.9);
  EXPECT_EQ(sgd.updates(), 1);
}

TEST(Sgd, DecaySkipsNormsAndBiasesByRole) {  // CASES OP-04
  const Tensor w = leaf({1});
  const Tensor gain = leaf({1});
  const Tensor bias = leaf({1});
  Sgd sgd({{"gamma", w, Role::Weight}, {"w", gain, Role::NormScale}, {"v", bias, Role::Bias}},
          {.lr = 0.1, .weight_decay = 0.1});
  Gradients g;
  for (const Tensor& t : {w, gain, bias}) g.insert(t, Tensor::zeros({1}, Dtype::F64));
  for (int i = 0; i < 10; ++i) sgd.step(g);
  EXPECT_NEAR(w.item(), 0.9043820750088044, 1e-15);
  EXPECT_EQ(gain.item(), 1);
  EXPECT_EQ(bias.item(), 1);
  EXPECT_THAT(sgd.describe_groups(), HasSubstr("w (norm scale): no weight decay"));
}

TEST(Sgd, RefusesOptionsOutOfRangeAndTiedParameters) {
  const Tensor w = leaf({1});
  const std::vector<Parameter> p{{"w", w, Role::Weight}};
  EXPECT_THROW(Sgd(p, {.lr = -1}), Error);
  EXPECT_THROW(Sgd(p, {.lr = std::numeric_limits<double>::quiet_NaN()}), Error);
  EXPECT_THROW(Sgd(p, {.momentum = 1.0}), Error);
  EXPECT_THROW(Sgd(p, {.nesterov = true}), Error);
  EXPECT_THROW(Sgd(p, {.weight_decay = -0.1}), Error);
  EXPECT_THROW(Sgd({}, {}), Error);
  EXPECT_THAT(message_of([&] {
                Sgd({{"a", w, Role::Weight}, {"b", w, Role::Weight}}, {});
              }),
              AllOf(HasSubstr("'a'"), HasSubstr("'b'")));
}

TEST(Sgd, LeavesParametersWithoutGradientAlone) {
  const Tensor w = leaf({2});
  Tensor frozen = leaf({3});
  Sgd sgd({{"w", w, Role::Weight}, {"frozen", frozen, Role::Weight}}, {.lr = 0.1});
  sgd.step(Gradients());
  Gradients g = one_gradient(frozen, {1});
  frozen.set_requires_grad(false);
  sgd.step(g);
  EXPECT_EQ(w.item(), 2);
  EXPECT_EQ(frozen.item(), 3);
}

TEST(Sgd, AStepSpoilsATapeThatStillNeedsTheOldWeights) {  // CASES AG-01
  const Tensor w = leaf({2});
  Sgd sgd({{"w", w, Role::Weight}}, {.lr = 0.1});
  Tape tape;
  const Tensor y = w * w;
  sgd.step(one_gradient(w, {1}));
  EXPECT_THAT(message_of([&] { (void)tape.backward(y); }),
              AllOf(HasSubstr("mul: saved tensor"), HasSubstr("'Sgd'")));
}

/// Gradient steps on mean((w - sample)^2) over windows of samples, one backward per sample or one
/// per window.
double descend(const std::vector<double>& samples, std::size_t window, bool sample_by_sample,
               std::int64_t& updates) {
  const Tensor w = leaf({0});
  Sgd sgd({{"w", w, Role::Weight}}, {.lr = 0.1});
  for (std::size_t first = 0; first < samples.size(); first += window) {
    const std::size_t count = std::min(window, samples.size() - first);
    Gradients sum;
    for (std::size_t i = first; i < first + count; i += sample_by_sample ? 1 : count) {
      Tape tape;
      Tensor loss = square(w - samples[i]);
      for (std::size_t j = i + 1; !sample_by_sample && j < first + count; ++j) {
        loss = loss + square(w - samples[j]);
      }
      sum += tape.backward(loss);
    }
    sum *= 1.0 / static_cast<double>(count);  // its own count, also in the last window
    sgd.step(sum);
  }
  updates = sgd.updates();
  return w.item();
}

TEST(Sgd, TheLastPartialWindowIsDividedByItsOwnCount) {  // CASES AG-11
  const std::vector<double> samples{1, 4, -2, 3, 0.5, 7, 2, -1, 10, 6};
  std::int64_t updates = 0;
  const double accumulated = descend(samples, 4, true, updates);
  EXPECT_EQ(updates, 3);
  const double joined = descend(samples, 4, false, updates);
  EXPECT_EQ(updates, 3);
  EXPECT_NEAR(accumulated, joined, 1e-14);
  double w = 0;
  for (const double mean : {1.5, 2.125, 8.0}) w -= 0.1 * 2 * (w - mean);
  EXPECT_NEAR(accumulated, w, 1e-14);
}

TEST(Clip, NormIsGlobalAndExact) {  // CASES AG-12
  const Tensor a = leaf({0});
  const Tensor b = leaf({0});
  const std::vector<Parameter> parameters{{"a", a, Role::Weight}, {"b", b, Role::Weight}};
  Gradients g = one_gradient(a, {3});
  g.insert(b, Tensor::of({1}, {4}, Dtype::F64));
  EXPECT_EQ(grad_norm(g, parameters), 5);
  const ClipReport report = clip_grad_norm(g, parameters);
  EXPECT_EQ(report.norm, 5);
  EXPECT_TRUE(report.clipped);
  EXPECT_DOUBLE_EQ(g[a].item(), 0.6);
  EXPECT_DOUBLE_EQ(g[b].item(), 0.8);
  EXPECT_FALSE(clip_grad_norm(g, parameters, {.max_norm = 2}).clipped);
  EXPECT_DOUBLE_EQ(g[a].item(), 0.6);
}

TEST(Clip, NonFiniteGradientsAreNamedAndNothingChanges) {  // CASES AG-12
  const Tensor a = leaf({0, 0});
  const Tensor b = leaf({0, 0});
  const std::vector<Parameter> parameters{{"fc.weight", a, Role::Weight},
                                          {"fc.bias", b, Role::Bias}};
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    Gradients g = one_gradient(a, {1, 2});
    g.insert(b, Tensor::of({2}, {1, bad}, Dtype::F64));
    EXPECT_THAT(message_of([&] { clip_grad_norm(g, parameters); }),
                AllOf(HasSubstr("'fc.bias'"), HasSubstr("of 2 elements, first at 1")));
    EXPECT_THAT(message_of([&] { clip_grad_value(g, parameters, 0.5); }), HasSubstr("'fc.bias'"));
    EXPECT_EQ(g[a].data<double>()[1], 2);
    EXPECT_EQ(g[b].data<double>()[0], 1);
  }
}

TEST(Sgd, RefusesTheGradientsOfAnotherModel) {
  const Tensor w = leaf({2});
  const Tensor copy = leaf({2});
  Sgd sgd({{"w", w, Role::Weight}}, {.lr = 0.1});
  EXPECT_THAT(message_of([&] { sgd.step(one_gradient(copy, {1})); }),
              HasSubstr("none of the 1 gradients"));
  EXPECT_EQ(sgd.updates(), 0);
  sgd.step(Gradients());
  EXPECT_EQ(sgd.updates(), 1);
  EXPECT_EQ(w.item(), 2);
}

TEST(Clip, ANormThatOverflowsIsRefused) {
  const Tensor a = leaf({0});
  const std::vector<Parameter> parameters{{"a", a, Role::Weight}};
  Gradients g = one_gradient(a, {1e200});
  EXPECT_THROW((void)clip_grad_norm(g, parameters), NonFiniteError);
  EXPECT_EQ(g[a].item(), 1e200);
}

TEST(Clip, ValuesAreLimited) {
  const Tensor a = leaf({0, 0, 0});
  Gradients g = one_gradient(a, {-3, 0.2, 7});
  const ClipReport report = clip_grad_value(g, std::vector<Parameter>{{"a", a, Role::Weight}}, 0.5);
  EXPECT_EQ(report.norm, 7);
  EXPECT_THAT(g[a].data<double>(), testing::ElementsAre(-0.5, 0.2, 0.5));
}

}  // namespace
}  // namespace steady
