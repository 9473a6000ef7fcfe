#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/optim/adagrad.hpp>
#include <steadygrad/optim/adam.hpp>
#include <steadygrad/optim/clip.hpp>
#include <steadygrad/optim/rmsprop.hpp>
#include <steadygrad/optim/sgd.hpp>
#include <string>
#include <vector>

#include "tests/support/golden.hpp"

namespace steady {
namespace {

using testing_support::expect_close;
using testing_support::Golden;
using testing_support::GoldenCase;

constexpr std::int64_t Steps = 20;

AdamWOptions adamw_options(const GoldenCase& c) {
  AdamWOptions o{.lr = c.attribute_double("lr"),
                 .beta1 = c.attribute_double("beta1"),
                 .beta2 = c.attribute_double("beta2"),
                 .eps = c.attribute_double("eps"),
                 .weight_decay = c.attribute_double("weight_decay", 0),
                 .amsgrad = c.attribute_int("amsgrad") != 0,
                 .decay_roles = RoleSet::all()};
  if (c.has_attribute("weight_decay_p0")) {
    o.groups.push_back({.matches = [](const Parameter& p) { return p.name == "p0"; },
                        .weight_decay = c.attribute_double("weight_decay_p0")});
    o.weight_decay = c.attribute_double("weight_decay_p1");
  }
  return o;
}

AdamOptions adam_options(const GoldenCase& c) {
  const AdamWOptions o = adamw_options(c);
  return {.lr = o.lr,
          .beta1 = o.beta1,
          .beta2 = o.beta2,
          .eps = o.eps,
          .weight_decay = o.weight_decay,
          .amsgrad = o.amsgrad,
          .decay_roles = o.decay_roles};
}

SgdOptions sgd_options(const GoldenCase& c) {
  return {.lr = c.attribute_double("lr"),
          .momentum = c.attribute_double("momentum", 0),
          .dampening = c.attribute_double("dampening", 0),
          .nesterov = c.attribute_int("nesterov", 0) != 0,
          .weight_decay = c.attribute_double("weight_decay", 0),
          .decay_roles = RoleSet::all()};
}

RmsPropOptions rmsprop_options(const GoldenCase& c) {
  return {.lr = c.attribute_double("lr"),
          .alpha = c.attribute_double("alpha"),
          .eps = c.attribute_double("eps"),
          .weight_decay = c.attribute_double("weight_decay"),
          .momentum = c.attribute_double("momentum"),
          .centered = c.attribute_int("centered") != 0,
          .decay_roles = RoleSet::all()};
}

AdagradOptions adagrad_options(const GoldenCase& c) {
  return {.lr = c.attribute_double("lr"),
          .lr_decay = c.attribute_double("lr_decay"),
          .weight_decay = c.attribute_double("weight_decay"),
          .initial_accumulator_value = c.attribute_double("initial_accumulator_value"),
          .eps = c.attribute_double("eps"),
          .decay_roles = RoleSet::all()};
}

std::unique_ptr<Optimizer> make_optimizer(const GoldenCase& c, std::vector<Parameter> p) {
  const std::string kind = c.attribute_string("optimizer");
  if (kind == "adam") return std::make_unique<Adam>(std::move(p), adam_options(c));
  if (kind == "adamw") return std::make_unique<AdamW>(std::move(p), adamw_options(c));
  if (kind == "rmsprop") return std::make_unique<RmsProp>(std::move(p), rmsprop_options(c));
  if (kind == "adagrad") return std::make_unique<Adagrad>(std::move(p), adagrad_options(c));
  if (kind == "sgd") return std::make_unique<Sgd>(std::move(p), sgd_options(c));
  throw Error("no optimizer " + kind);
}

/// The parameters of a case as it begins, biases by role so that only RoleSet::all() decays them.
std::vector<Parameter> initial_parameters(const GoldenCase& c, Dtype dtype) {
  std::vector<Parameter> parameters;
  for (const char* name : {"p0", "p1"}) {
    Tensor value = c.tensor(std::string("init/") + name).detached_copy(dtype);
    parameters.push_back({name, value.set_requires_grad(), Role::Bias});
  }
  return parameters;
}

/// Entry `step` of a dataset [20, shape...].
Tensor entry(const GoldenCase& c, const std::string& name, std::int64_t step, const Shape& shape) {
  const Tensor all = c.tensor(name);
  const auto n = static_cast<std::size_t>(shape.numel());
  return Tensor::from<double>(shape,
                              all.data<double>().subspan(static_cast<std::size_t>(step) * n, n));
}

Gradients gradients_of(const GoldenCase& c, const std::vector<Parameter>& parameters,
                       std::int64_t step) {
  Gradients g;
  for (const Parameter& p : parameters) {
    g.insert(p.value,
             entry(c, "grads/" + p.name, step, p.value.shape()).detached_copy(p.value.dtype()));
  }
  return g;
}

void expect_trajectory_point(const GoldenCase& c, const Parameter& p, std::int64_t step) {
  const Tensor got = p.value.detached_copy(Dtype::F64);
  const Tensor want = entry(c, "traj/" + p.name, step, p.value.shape());
  for (std::size_t k = 0; k < got.data<double>().size(); ++k) {
    const double w = want.data<double>()[k];
    const double tolerance = p.value.dtype() == Dtype::F64 ? 1e-12 : 1e-5 * (1 + std::abs(w));
    ASSERT_NEAR(got.data<double>()[k], w, tolerance) << p.name << " step " << step;
  }
}

struct Trajectory : testing::TestWithParam<std::tuple<const char*, Dtype>> {
  const Golden golden{"optim.h5"};
  const GoldenCase c = golden.group(std::string("/") + std::get<0>(GetParam()));
  const Dtype dtype = std::get<1>(GetParam());
  const std::vector<Parameter> parameters = initial_parameters(c, dtype);
};

TEST_P(Trajectory, FollowsPyTorchForTwentyStepsToItsState) {
  const auto optimizer = make_optimizer(c, parameters);
  for (std::int64_t step = 0; step < Steps; ++step) {
    optimizer->step(gradients_of(c, parameters, step));
    for (const Parameter& p : parameters) {
      ASSERT_NO_FATAL_FAILURE(expect_trajectory_point(c, p, step));
    }
  }
  const State state = optimizer->state();
  std::size_t arrays = 0;
  for (const Parameter& p : parameters) {
    for (const std::string& name : c.datasets("state_final/" + p.name)) {
      const Tensor mine = find(state, p.name + "." + name);
      ASSERT_TRUE(mine.defined()) << name;
      expect_close(mine, c, "state_final/" + p.name + "/" + name, 1e-12);
      if (name != "step") ++arrays;
    }
    EXPECT_EQ(find(state, p.name + ".step").data<std::int64_t>()[0], Steps);
  }
  const auto of_training = std::ranges::count_if(state, [&](const NamedTensor& t) {
    const auto ends = [&](const char* what) { return t.name.ends_with(what); };
    return !ends(".weight_decay") && std::ranges::any_of(parameters, [&](const Parameter& p) {
      return t.name.starts_with(p.name + ".");
    });
  });
  EXPECT_EQ(of_training, std::ssize(parameters) + static_cast<std::ptrdiff_t>(arrays));
}

/// CASES OP-09, OP-10: after half of the way everything moves to an optimizer that has done
/// nothing.
TEST_P(Trajectory, GoesOnFromASavedStateBitForBit) {
  const auto whole = make_optimizer(c, parameters);
  std::vector<Parameter> moved = initial_parameters(c, dtype);
  const auto before = make_optimizer(c, moved);
  std::unique_ptr<Optimizer> after;
  for (std::int64_t step = 0; step < Steps; ++step) {
    whole->step(gradients_of(c, parameters, step));
    if (step == Steps / 2) {
      after = make_optimizer(c, moved);
      after->load_state(before->state());
    }
    (after ? after : before)->step(gradients_of(c, moved, step));
  }
  for (std::size_t i = 0; i < moved.size(); ++i) {
    expect_close(moved[i].value, parameters[i].value, 0.0);
  }
  EXPECT_EQ(after->updates(), Steps);
}

INSTANTIATE_TEST_SUITE_P(
    Golden, Trajectory,
    testing::Combine(testing::Values("sgd_plain", "sgd_momentum", "sgd_momentum_dampening",
                                     "sgd_nesterov", "sgd_nesterov_weight_decay",
                                     "sgd_weight_decay", "adam", "adam_amsgrad", "adam_betas_eps",
                                     "adam_weight_decay", "adamw", "adamw_amsgrad",
                                     "adamw_betas_0.9_0.95", "adamw_two_groups",
                                     "adamw_weight_decay_0.5", "rmsprop", "rmsprop_centered",
                                     "rmsprop_everything", "rmsprop_momentum", "adagrad",
                                     "adagrad_initial_accumulator", "adagrad_lr_decay"),
                     testing::Values(Dtype::F64, Dtype::F32)));

TEST(Clip, TrajectoriesAndNormsAreThoseOfPyTorch) {
  const Golden golden("optim.h5");
  const auto check = [](const GoldenCase& c, auto clip) {
    SCOPED_TRACE(c.path());
    const std::vector<Parameter> parameters = initial_parameters(c, Dtype::F64);
    const auto sgd = make_optimizer(c, parameters);
    for (std::int64_t step = 0; step < Steps; ++step) {
      Gradients g = gradients_of(c, parameters, step);
      clip(g, parameters, step);
      for (const Parameter& p : parameters) {
        expect_close(g[p.value], entry(c, "clipped/" + p.name, step, p.value.shape()), 1e-12);
      }
      sgd->step(g);
      for (const Parameter& p : parameters) {
        ASSERT_NO_FATAL_FAILURE(expect_trajectory_point(c, p, step));
      }
    }
  };
  for (const char* name : {"l2_norm_3", "l2_norm_1000_never"}) {
    const GoldenCase c = golden.group(std::string("/clip_grad_norm/") + name);
    check(c, [&](Gradients& g, const std::vector<Parameter>& p, std::int64_t step) {
      const ClipReport report =
          clip_grad_norm(g, p, {.max_norm = c.attribute_double("max_norm"), .epsilon = 1e-6});
      EXPECT_NEAR(report.norm,
                  c.tensor("total_norm").data<double>()[static_cast<std::size_t>(step)], 1e-12);
    });
  }
  const GoldenCase c = golden.cases("clip_grad_value").at(0);
  check(c, [&](Gradients& g, const std::vector<Parameter>& p, std::int64_t) {
    clip_grad_value(g, p, c.attribute_double("clip_value"));
  });
}

}  // namespace
}  // namespace steady
