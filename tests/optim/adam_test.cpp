#include <steadygrad/optim/adam.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/optim/adagrad.hpp>
#include <steadygrad/optim/rmsprop.hpp>
#include <vector>

#include "tests/optim/leaves.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/message_of.hpp"

namespace steady {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::close;
using testing_support::leaf;
using testing_support::message_of;
using testing_support::one_gradient;

/// The values of a weight after each gradient.
template <class O>
std::vector<double> path(O& optimizer, const Tensor& w, std::initializer_list<double> gradients) {
  std::vector<double> values;
  for (const double g : gradients) {
    optimizer.step(one_gradient(w, {g}));
    values.push_back(w.item());
  }
  return values;
}

void expect_path(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-14) << i;
}

TEST(Adam, EpsIsOutsideTheRootOfTheCorrectedMeanSquare) {  // CASES OP-01
  const Tensor w = leaf({1});
  Adam adam({{"w", w, Role::Weight}}, {.lr = 0.1, .eps = 1e-3});
  expect_path(path(adam, w, {.01, -.02, .005}),
              {0.9090909090909091, 0.9435238576631114, 0.9562321951859579});
}

TEST(Adam, WithL2IsNotAdamW) {  // CASES OP-02
  const Tensor a = leaf({2});
  AdamW adamw({{"w", a, Role::Weight}}, {.lr = 0.1, .weight_decay = 0.1});
  expect_path(path(adamw, a, {.5, .5, -1}), {1.880000002, 1.7612000039800009, 1.7511529369089125});
  const Tensor b = leaf({2});
  Adam adam({{"w", b, Role::Weight}}, {.lr = 0.1, .weight_decay = 0.1});
  expect_path(path(adam, b, {.5, .5, -1}),
              {1.9000000014285714, 1.8000400943590456, 1.7816663638608787});
}

TEST(AdamW, DecayIsMultipliedByTheRate) {  // CASES OP-03
  const Tensor w = leaf({1});
  AdamW adamw({{"w", w, Role::Weight}}, {.lr = 0.1, .weight_decay = 0.1});
  adamw.step(one_gradient(w, {0}));
  EXPECT_DOUBLE_EQ(w.item(), 0.99);
  adamw.set_lr(0.05);
  adamw.step(one_gradient(w, {0}));
  EXPECT_DOUBLE_EQ(w.item(), 0.99 * 0.995);
}

TEST(AdamW, DecaySkipsNormsAndBiasesByRole) {  // CASES OP-04
  std::vector<Parameter> parameters{{"gamma", leaf({1}), Role::Weight},
                                    {"table", leaf({1}), Role::Embedding},
                                    {"ln_1.weight", leaf({1}), Role::NormScale},
                                    {"scale", leaf({1}), Role::NormShift},
                                    {"w", leaf({1}), Role::Bias}};
  AdamW adamw(parameters, {.lr = 0.1, .weight_decay = 0.1});
  Gradients zero;
  for (const Parameter& p : parameters) zero.insert(p.value, Tensor::zeros({1}, Dtype::F64));
  for (int i = 0; i < 10; ++i) adamw.step(zero);
  for (const Parameter& p : parameters) {
    const bool decayed = p.role == Role::Weight || p.role == Role::Embedding;
    const double want = decayed ? 0.9043820750088044 : 1.0;
    EXPECT_NEAR(p.value.item(), want, decayed ? 1e-15 : 0.0) << p.name;
  }
  EXPECT_THAT(adamw.describe_groups(), AllOf(HasSubstr("gamma (weight): weight decay 0.1\n"),
                                             HasSubstr("w (bias): no weight decay\n")));
}

TEST(AdamW, AGroupOverridesOnlyWhatItNames) {  // CASES OP-07
  const Tensor a = leaf({1});
  const Tensor b = leaf({1});
  const Tensor c = leaf({1});
  AdamW adamw(
      {{"a", a, Role::Weight}, {"b", b, Role::Embedding}, {"c", c, Role::Bias}},
      {.lr = 0.01,
       .weight_decay = 0.5,
       .groups = {{.matches = has_role({Role::Embedding}), .weight_decay = 0.0},
                  {.matches = [](const Parameter& p) { return p.name == "c"; }, .lr_scale = 0.1}}});
  const auto step = [&] {
    Gradients g = one_gradient(a, {1});
    g.insert(b, Tensor::ones({1}, Dtype::F64));
    g.insert(c, Tensor::ones({1}, Dtype::F64));
    adamw.step(g);
  };
  step();  // the first step of Adam is lr long
  EXPECT_NEAR(a.item(), 1 - 0.01 * 0.5 - 0.01, 1e-9);
  EXPECT_NEAR(b.item(), 1 - 0.01, 1e-9);
  EXPECT_NEAR(c.item(), 1 - 0.001, 1e-9);
  const double before = b.item();
  const double scaled_before = c.item();
  adamw.set_lr(0.002);
  step();
  EXPECT_NEAR(b.item() - before, -0.002, 1e-9);
  EXPECT_NEAR(c.item() - scaled_before, -0.0002, 1e-9);
  EXPECT_THAT(adamw.describe_groups(), HasSubstr("c (bias): no weight decay, 0.1 of the"));
}

TEST(AdamW, RefusesAGroupWithoutParameters) {
  const std::vector<Parameter> p{{"w", leaf({1}), Role::Weight}};
  const auto everything = [](const Parameter&) { return true; };
  EXPECT_THAT(message_of([&] { AdamW(p, {.groups = {{.matches = has_role({Role::Embedding})}}}); }),
              HasSubstr("AdamW: group 0 has no parameters"));
  EXPECT_THAT(message_of([&] {
                AdamW(p, {.groups = {{.matches = everything}, {.matches = everything}}});
              }),
              HasSubstr("group 1"));
  EXPECT_THROW(AdamW(p, {.groups = {{}}}), Error);
  EXPECT_THROW(AdamW(p, {.groups = {{.matches = everything, .lr_scale = -1}}}), Error);
}

TEST(Adam, RefusesOptionsOutOfRange) {
  const std::vector<Parameter> p{{"w", leaf({1}), Role::Weight}};
  EXPECT_THROW(Adam(p, {.lr = -1}), Error);
  EXPECT_THROW(Adam(p, {.beta1 = 1.0}), Error);
  EXPECT_THROW(Adam(p, {.beta2 = -0.1}), Error);
  EXPECT_THROW(Adam(p, {.eps = std::numeric_limits<double>::infinity()}), Error);
  EXPECT_THROW(AdamW(p, {.weight_decay = -1}), Error);
  EXPECT_THROW(Adam(p).set_beta1(1.0), Error);
  EXPECT_THROW(RmsProp(p, {.alpha = 1.0}), Error);
  EXPECT_THROW(RmsProp(p, {.momentum = 1.0}), Error);
  EXPECT_THROW(RmsProp(p, {.eps = -1}), Error);
  EXPECT_THROW(Adagrad(p, {.lr_decay = -1}), Error);
  EXPECT_THROW(Adagrad(p, {.initial_accumulator_value = -1}), Error);
}

TEST(Adam, BetasKeepTheirOrder) {  // CASES OP-16
  const Tensor w = leaf({1});
  Adam adam({{"w", w, Role::Weight}}, {.lr = 0.1, .beta1 = 0.8, .beta2 = 0.95});
  expect_path(path(adam, w, {1, -.5, .25}), {0.900000001, 0.8787540866308634, 0.8478243279895495});
}

TEST(Adam, AParameterWithoutGradientKeepsItsCount) {
  const Tensor a = leaf({1});
  const Tensor b = leaf({1});
  Adam adam({{"a", a, Role::Weight}, {"b", b, Role::Weight}}, {.lr = 0.1});
  for (int i = 0; i < 3; ++i) adam.step(one_gradient(a, {1}));
  EXPECT_EQ(find(adam.state(), "a.step").data<std::int64_t>()[0], 3);
  EXPECT_FALSE(find(adam.state(), "b.step").defined());
  EXPECT_EQ(b.item(), 1);
  adam.step(one_gradient(b, {1}));  // its first step is corrected as one
  EXPECT_NEAR(b.item(), 0.9, 1e-8);
  EXPECT_EQ(find(adam.state(), "b.step").data<std::int64_t>()[0], 1);
  EXPECT_EQ(find(adam.state(), "a.step").data<std::int64_t>()[0], 3);
  EXPECT_EQ(adam.updates(), 4);
}

/// Six updates along 2 w + [.3, -.1] t; after three the state goes through `resume`.
template <class F>
std::vector<double> six_updates(const F& resume) {
  const Tensor w = leaf({1, -2});
  const auto make = [&] {
    return std::make_unique<AdamW>(std::vector<Parameter>{{"w", w, Role::Weight}},
                                   AdamWOptions{.lr = 0.05});
  };
  auto adamw = make();
  for (int t = 1; t <= 6; ++t) {
    if (t == 4) adamw = resume(std::move(adamw), make);
    const auto v = w.data<double>();
    adamw->step(one_gradient(w, {2 * v[0] + .3 * t, 2 * v[1] - .1 * t}));
  }
  return {w.data<double>().begin(), w.data<double>().end()};
}

TEST(AdamW, ResumesExactlyAndAColdStartIsAnotherThing) {  // CASES OP-09, OP-10, OP-11
  const auto whole = six_updates([](auto adamw, const auto&) { return adamw; });
  const auto resumed = six_updates([](auto adamw, const auto& make) {
    auto fresh = make();
    fresh->load_state(adamw->state());
    EXPECT_EQ(fresh->updates(), 3);
    return fresh;
  });
  const auto cold = six_updates([](auto, const auto& make) { return make(); });
  EXPECT_EQ(whole, resumed);
  expect_path(whole, {0.6956363993107667, -1.6943995174963196});
  expect_path(cold, {0.696930112338294, -1.6943866923975555});
}

TEST(AdamW, AStateThatDoesNotFitChangesNothing) {
  const Tensor a = leaf({1, 2});
  const Tensor b = leaf({1});
  AdamW adamw({{"a", a, Role::Weight}, {"b", b, Role::Weight}}, {.lr = 0.1});
  adamw.step(one_gradient(a, {1, 1}));
  const State good = adamw.state();
  const Tensor moment = find(good, "a.exp_avg").detached_copy();
  State bad = good;
  bad[1].value = Tensor::scalar(7.0, Dtype::F64);  // lr: may not come through
  bad.pop_back();                                  // a.exp_avg_sq
  bad.back().value = Tensor::zeros({3}, Dtype::F64);
  bad.push_back({"c.exp_avg", Tensor::zeros({1}, Dtype::F64)});
  bad.push_back({"b.exp_avg", Tensor::zeros({1}, Dtype::F32)});
  EXPECT_THAT(message_of([&] { adamw.load_state(bad); }),
              AllOf(HasSubstr("missing: a.exp_avg_sq; b.step; b.exp_avg_sq"),
                    HasSubstr("unexpected: c.exp_avg"), HasSubstr("a.exp_avg: must be f64 [2]"),
                    HasSubstr("b.exp_avg: must be f64 [1], state f32 [1]")));
  EXPECT_EQ(adamw.lr(), 0.1);
  EXPECT_EQ(adamw.updates(), 1);
  EXPECT_TRUE(close(find(adamw.state(), "a.exp_avg"), moment, 0.0));

  State negative = good;
  negative[0].value = Tensor::from<std::int64_t>({}, std::vector<std::int64_t>{-1});
  EXPECT_THAT(message_of([&] { adamw.load_state(negative); }), HasSubstr("updates"));
  State twice = good;
  twice.push_back(good[0]);
  EXPECT_THAT(message_of([&] { adamw.load_state(twice); }), HasSubstr("'updates' twice"));
  adamw.load_state(good);
  EXPECT_EQ(adamw.updates(), 1);
}

TEST(AdamW, LoadingCopiesTheValues) {
  const Tensor w = leaf({1});
  AdamW one({{"w", w, Role::Weight}});
  one.step(one_gradient(w, {1}));
  AdamW other({{"w", w, Role::Weight}});
  other.load_state(one.state());
  const double before = find(other.state(), "w.exp_avg").item();
  one.step(one_gradient(w, {5}));
  EXPECT_EQ(find(other.state(), "w.exp_avg").item(), before);
}

TEST(AdamW, SteadyStateMapsNothingAndAnyThreadCountGivesTheSameBits) {
  const int threads_before = num_threads();
  const auto run = [](int threads) {
    set_num_threads(threads);
    Random random(3, "w");
    std::vector<float> values(100'003);
    for (float& v : values) v = static_cast<float>(random.normal());
    const Tensor w =
        Tensor::from<float>({100'003}, std::span<const float>(values)).set_requires_grad();
    AdamW adamw({{"w", w, Role::Weight}}, {.amsgrad = true});
    Gradients g;
    g.insert(w, w.detached_copy());
    adamw.step(g);
    const MemoryStats before = memory_stats();
    for (int i = 0; i < 3; ++i) adamw.step(g);
    EXPECT_EQ(memory_stats().mapped, before.mapped);
    EXPECT_EQ(memory_stats().live, before.live);
    return w;
  };
  const Tensor one = run(1);
  for (const int threads : {2, 3, 8}) EXPECT_TRUE(close(run(threads), one, 0.0)) << threads;
  set_num_threads(threads_before);
}

}  // namespace
}  // namespace steady
