#include <steadygrad/optim/schedule.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/optim/plateau.hpp>
#include <steadygrad/optim/sgd.hpp>
#include <string>
#include <vector>

#include "tests/optim/leaves.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/message_of.hpp"

namespace steady {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::Golden;
using testing_support::GoldenCase;
using testing_support::leaf;
using testing_support::message_of;
using testing_support::one_gradient;

void expect_values(const GoldenCase& c, const std::string& dataset, const Schedule& schedule) {
  const Tensor want = c.tensor(dataset);
  for (std::size_t s = 0; s < want.data<double>().size(); ++s) {
    EXPECT_NEAR(schedule(static_cast<std::int64_t>(s)), want.data<double>()[s], 1e-13)
        << c.path() << " " << dataset << " " << s;
  }
}

TEST(Schedule, WarmupThenLinearIsTheTableOfTheDefinition) {  // CASES OP-13
  const Schedule lr = warmup_schedule(4, linear_schedule(0.1, 6));
  const std::vector<double> want{.025,        .05,         .075, .1,          .1,
                                 0.1 * 5 / 6, 0.1 * 4 / 6, .05,  0.1 * 2 / 6, 0.1 / 6};
  for (std::size_t s = 0; s < want.size(); ++s) {
    EXPECT_NEAR(lr(static_cast<std::int64_t>(s)), want[s], 1e-16) << s;
  }
  EXPECT_EQ(lr(10), 0);
}

TEST(Schedule, GoldenValues) {
  const Golden golden("optim.h5");
  const auto check = [&](const char* name, const Schedule& schedule) {
    expect_values(golden.group(std::string("/schedule/") + name), "lr", schedule);
  };
  check("cosine_annealing", cosine_schedule(0.1, 40, 0.01));
  check("minimind_cosine", cosine_schedule(0.1, 40, 0.1 / 10));
  check("step", step_schedule(0.1, 7, 0.5));
  check("multistep", multistep_schedule(0.1, {5, 12, 30}, 0.3));
  check("exponential", exponential_schedule(0.1, 0.93));
  check("linear", linear_schedule(0.1, 10, {.start = 0.25, .end = 1.0}));
  check("warmup_cosine_t_plus_1_over_w", warmup_cosine_schedule(0.1, 8, 32, 0.01));
  check("warmup_cosine_nanogpt", warmup_cosine_schedule(0.1, 8, 32, 0.01, Warmup::BelowPeak));
  check("warmup_cosine_hf", warmup_cosine_schedule(0.1, 8, 32, 0.01, Warmup::FromZero));
}

TEST(Schedule, OneCycleIsPyTorchs) {
  const Golden golden("optim.h5");
  for (const bool linear : {false, true}) {
    const GoldenCase c =
        golden.group(std::string("/schedule/one_cycle_") + (linear ? "linear" : "cos"));
    const OneCycle cycle = one_cycle_schedule({.max_lr = 0.5, .total = 40, .linear = linear});
    expect_values(c, "lr", cycle.lr);
    expect_values(c, "momentum", cycle.momentum);
    EXPECT_EQ(cycle.lr(1000), cycle.lr(39));
  }
}

TEST(Schedule, RefusesNonsense) {
  EXPECT_THROW((void)cosine_schedule(0.1, 0), Error);
  EXPECT_THROW((void)step_schedule(-1, 5), Error);
  EXPECT_THROW((void)warmup_schedule(-1, constant_schedule(1)), Error);
  EXPECT_THROW((void)warmup_schedule(1, nullptr), Error);
  EXPECT_THROW((void)warmup_cosine_schedule(0.1, 10, 10), Error);
  EXPECT_THROW((void)multistep_schedule(0.1, {5, 5}), Error);
  EXPECT_THROW((void)exponential_schedule(0.1, -0.5), Error);
  EXPECT_THROW((void)linear_schedule(0.1, 10, {.start = -1}), Error);
  EXPECT_THROW((void)one_cycle_schedule({.total = 1}), Error);
  EXPECT_THROW((void)one_cycle_schedule({.total = 10, .rising = 1.0}), Error);
  EXPECT_THROW((void)one_cycle_schedule({.total = 10, .max_momentum = 1.0}), Error);
}

TEST(Schedule, TheRateSetIsTheRateUsed) {  // CASES OP-12
  const Tensor w = leaf({0});
  Sgd sgd({{"w", w, Role::Weight}});
  const Schedule lr = warmup_schedule(4, constant_schedule(0.4));
  for (const double used : {0.1, 0.2, 0.3, 0.4, 0.4}) {
    sgd.set_lr(lr(sgd.updates()));
    const double logged = sgd.lr();
    const double before = w.item();
    sgd.step(one_gradient(w, {-1}));
    EXPECT_NEAR(w.item() - before, used, 1e-15);
    EXPECT_EQ(logged, sgd.lr());
  }
}

TEST(Schedule, OneCycleDrivesRateAndMomentum) {
  const Tensor w = leaf({0});
  Sgd sgd({{"w", w, Role::Weight}}, {.momentum = 0.9});
  const OneCycle cycle = one_cycle_schedule({.max_lr = 0.5, .total = 10});
  double p = 0;
  double buffer = 0;
  for (std::int64_t s = 0; s < 10; ++s) {
    sgd.set_lr(cycle.lr(s));
    sgd.set_momentum(cycle.momentum(s));
    sgd.step(one_gradient(w, {1}));
    buffer = s == 0 ? 1 : cycle.momentum(s) * buffer + 1;
    p -= cycle.lr(s) * buffer;
  }
  EXPECT_NEAR(w.item(), p, 1e-13);
  EXPECT_THROW(sgd.set_momentum(1.0), Error);
  Sgd plain({{"w", w, Role::Weight}});
  EXPECT_THROW(plain.set_momentum(0.9), Error);
}

PlateauOptions plateau_options(const GoldenCase& c) {
  return {.factor = c.attribute_double("factor"),
          .patience = c.attribute_int("patience"),
          .threshold = c.attribute_double("threshold"),
          .absolute_threshold = c.attribute_string("threshold_mode") == "abs",
          .higher_is_better = c.attribute_string("mode") == "max",
          .cooldown = c.attribute_int("cooldown"),
          .min_lr = c.attribute_double("min_lr"),
          .min_change = c.attribute_double("eps")};
}

/// With a new object that takes the state over before every report, the rates are the same.
TEST(ReduceOnPlateau, IsPyTorchsAndItsStateIsAllThereIs) {
  const Golden golden("optim.h5");
  for (const char* name : {"default_threshold", "abs_threshold", "cooldown", "min_lr"}) {
    SCOPED_TRACE(name);
    const GoldenCase c = golden.group(std::string("/schedule/reduce_on_plateau_") + name);
    const Tensor metric = c.tensor("metric");
    const Tensor after = c.tensor("lr_after");
    double lr = c.attribute_double("base_lr");
    State state = ReduceOnPlateau(plateau_options(c)).state();
    for (std::size_t t = 0; t < metric.data<double>().size(); ++t) {
      ReduceOnPlateau plateau(plateau_options(c));
      plateau.load_state(state);
      lr = plateau.report(lr, metric.data<double>()[t]);
      EXPECT_NEAR(lr, after.data<double>()[t], 1e-15) << t;
      state = plateau.state();
    }
  }
}

TEST(ReduceOnPlateau, WaitsForMoreWhenHigherIsBetterAndNeverTakesANan) {
  ReduceOnPlateau plateau({.factor = 0.5, .patience = 1, .higher_is_better = true});
  EXPECT_EQ(plateau.report(1.0, 0.5), 1.0);
  EXPECT_EQ(plateau.report(1.0, 0.6), 1.0);
  EXPECT_EQ(plateau.report(1.0, std::numeric_limits<double>::quiet_NaN()), 1.0);
  EXPECT_EQ(plateau.report(1.0, 0.6), 0.5);
  EXPECT_EQ(plateau.best(), 0.6);
}

TEST(ReduceOnPlateau, RefusesNonsense) {
  EXPECT_THROW(ReduceOnPlateau({.factor = 1.0}), Error);
  EXPECT_THROW(ReduceOnPlateau({.patience = -1}), Error);
  ReduceOnPlateau plateau({.patience = 0});
  EXPECT_EQ(plateau.report(1.0, 3.0), 1.0);
  EXPECT_THAT(message_of([&] {
                plateau.load_state({{"best", Tensor::scalar(1.0, Dtype::F64)}});
              }),
              AllOf(HasSubstr("missing: bad_reports; cooldown_left")));
  EXPECT_EQ(plateau.best(), 3.0);
}

}  // namespace
}  // namespace steady
