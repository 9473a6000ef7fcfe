#include <steadygrad/core/io/training_state.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <steadygrad/core/ops/loss.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/dropout.hpp>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/optim/adam.hpp>
#include <steadygrad/optim/plateau.hpp>
#include <steadygrad/optim/sgd.hpp>

#include "tests/core/io/checkpoint_testing.hpp"
#include "tests/optim/leaves.hpp"
#include "tests/support/message_of.hpp"

namespace steady {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::leaf;
using testing_support::message_of;
using testing_support::one_gradient;
namespace fs = std::filesystem;

/// A linear map, statistics, dropout, and a linear map.
struct Net : Layer {
  struct Options {
    std::int64_t width = 6;
  };
  explicit Net(Options options) : o(options) {}
  const Options o;
  Linear& in = add<Linear>("in", {.in = 3, .out = o.width});
  BatchNorm& norm = add<BatchNorm>("norm", {.features = o.width});
  Dropout& drop = add<Dropout>("drop", {.p = 0.3});
  Linear& out = add<Linear>("out", {.in = o.width, .out = 2});
  Tensor forward(const Tensor& x) override { return out(drop(norm(in(x)))); }
};

/// A run that is saved and resumed as a user's program would be.
struct Training {
  explicit Training(std::int64_t width = 6) : net(Net::Options{width}) {
    net.initialize(1);
    optimizer = std::make_unique<AdamW>(
        net.parameters(),
        AdamWOptions{.lr = 0.02, .groups = {{.matches = has_role({Role::Bias}), .lr_scale = 0.5}}});
    state.track("model", net).track("optimizer", *optimizer).track("plateau", plateau);
    state.track("step", step).track("losses", losses).track("note", note);
    state.option("norm", std::string("batch")).option("seed", std::uint64_t{1});
  }
  void train(std::int64_t until) {
    for (; step < until; ++step) {
      Random random(3, fmt::format("batch{}", step));
      Tensor x = Tensor::empty({8, 3});
      Tensor y = Tensor::empty({8}, Dtype::I64);
      for (float& v : x.mutable_data<float>()) v = static_cast<float>(random.normal());
      for (std::int64_t& v : y.mutable_data<std::int64_t>()) v = random.below(2);
      Tape tape;
      const Tensor loss = cross_entropy(net(x), y);
      losses.push_back(loss.item());
      optimizer->step(tape.backward(loss));
      optimizer->set_lr(plateau.report(optimizer->lr(), losses.back()));
    }
  }

  Net net;
  std::unique_ptr<AdamW> optimizer;
  ReduceOnPlateau plateau{{.factor = 0.9, .patience = 2}};
  std::int64_t step = 0;
  std::vector<double> losses;
  std::string note = "new";
  TrainingState state;
};

struct TrainingStateTest : testing::Test {
  test::TemporaryDirectory directory;
  fs::path path = directory.path() / "state.h5";
};

TEST_F(TrainingStateTest, ResumedIsUninterruptedBitForBitAndColdIsNot) {  // CASES OP-09, OP-11
  const auto at = 1 + Random(17, "moment").below(40);
  Training whole;
  whole.train(at + 50);
  whole.state.save(directory.path() / "whole.h5");
  {
    Training first;
    first.train(at);
    first.note = "saved";
    first.state.save(path);
  }
  const int threads = num_threads();
  for (const int other : {1, 2}) {
    set_num_threads(other);
    Training second;
    second.state.load(path);
    EXPECT_EQ(second.step, at);
    EXPECT_EQ(second.optimizer->updates(), at);
    EXPECT_EQ(second.note, "saved");
    second.note = "new";
    second.train(at + 50);
    second.state.save(directory.path() / "resumed.h5");
    EXPECT_EQ(second.losses, whole.losses);
    EXPECT_EQ(test::bytes_of_file(directory.path() / "resumed.h5"),
              test::bytes_of_file(directory.path() / "whole.h5"));
  }
  set_num_threads(threads);
  // What is left out shows: the optimizer's moments, or the calls of dropout.
  for (const bool moments : {false, true}) {
    Training cold;
    const Checkpoint saved = load_checkpoint(path);
    cold.net.load(saved.find("model")->tensors);
    if (moments) cold.optimizer->load_state(saved.find("optimizer")->tensors);
    cold.step = at;
    cold.train(at + 50);
    EXPECT_NE(cold.losses, std::vector(whole.losses.end() - 50, whole.losses.end()));
  }
}

TEST_F(TrainingStateTest, EvaluatesAsBeforeAfterLoading) {  // CASES H5-10
  Training trained;
  trained.train(20);
  trained.net.eval();
  trained.state.save(path);
  Training fresh;
  fresh.state.load(path);
  EXPECT_EQ(fresh.net.mode(), Mode::Eval);
  const Tensor x = Tensor::of({2, 3}, {1, -2, 3, 0.5, 0, 7});
  const Tensor a = trained.net(x);
  const Tensor b = fresh.net(x);
  EXPECT_TRUE(std::ranges::equal(a.data<float>(), b.data<float>()));
}

TEST_F(TrainingStateTest, ModesAndGradientFlagsComeBack) {
  Training saved;
  saved.net.norm.freeze();
  saved.net.out.bias.set_requires_grad(false);
  saved.state.save(path);
  const CheckpointPart part = *load_checkpoint(path).find("model");
  const auto value = [&](const std::string& name) {
    const auto at = std::ranges::find(part.values, name, [](const auto& v) { return v.first; });
    return at == part.values.end() ? std::string("none") : hdf5::to_string(at->second);
  };
  EXPECT_EQ(value("mode"), "train");
  EXPECT_EQ(value("norm.mode"), "frozen");
  EXPECT_EQ(value("out.bias.requires_grad"), "0");
  EXPECT_EQ(value("out.weight.requires_grad"), "none");
  EXPECT_EQ(value("drop.calls"), "0");
  Training loaded;
  loaded.net.in.freeze();
  loaded.state.load(path);
  EXPECT_EQ(loaded.net.norm.mode(), Mode::Frozen);
  EXPECT_FALSE(loaded.net.norm.weight.requires_grad());
  EXPECT_FALSE(loaded.net.out.bias.requires_grad());
  EXPECT_EQ(loaded.net.in.mode(), Mode::Train);
  EXPECT_TRUE(loaded.net.in.weight.requires_grad());
}

TEST_F(TrainingStateTest, OneMessageListsEveryFaultAndNothingIsTaken) {  // CASES H5-11, H5-13
  Training saved;
  saved.train(3);
  Checkpoint wrong = saved.state.checkpoint();
  State& model = wrong.parts[0].part.tensors;
  std::erase_if(model, [](const NamedTensor& t) { return t.name == "in.bias"; });
  model.push_back({"norm.running_variance", Tensor::zeros({6})});
  for (NamedTensor& t : model) {
    if (t.name == "out.weight") t.value = Tensor::zeros({1, 6});  // would broadcast
  }
  std::get<std::string>(wrong.parts[0].part.values[0].second) = "asleep";
  State& optimizer = wrong.parts[1].part.tensors;
  std::erase_if(optimizer, [](const NamedTensor& t) { return t.name == "in.weight.exp_avg"; });
  find(optimizer, "AdamW.beta2").mutable_data<double>()[0] = 0.5;
  find(optimizer, "in.bias.lr_scale").mutable_data<double>()[0] = 0.25;
  wrong.parts[3].part.values[0].first = "stop";
  wrong.parts[4].part.values[1].second = std::uint64_t{2};
  wrong.parts.push_back({"extra", {}});
  std::erase_if(wrong.parts, [](const auto& p) { return p.name == "plateau"; });

  Training run;
  run.train(1);
  run.state.save(directory.path() / "before.h5");
  const std::string text = message_of([&] { run.state.restore(wrong, "x.h5"); });
  EXPECT_THAT(text,
              AllOf(HasSubstr("'x.h5' does not fit this run\n  model: "),
                    HasSubstr("missing: in.bias\n"), HasSubstr("unexpected: norm.running_variance"),
                    HasSubstr("out.weight: model f32 [2, 6], state f32 [1, 6]"),
                    HasSubstr("mode: must be train, eval or frozen, state asleep"),
                    HasSubstr("missing: in.weight.exp_avg\n"),
                    HasSubstr("AdamW.beta2: must be 0.999, state 0.5"),
                    HasSubstr("in.bias.lr_scale: must be 0.5, state 0.25")));
  EXPECT_THAT(text, AllOf(HasSubstr("plateau: the whole part is missing"),
                          HasSubstr("progress: missing: step"), HasSubstr("unexpected: stop"),
                          HasSubstr("options: other: seed: here 1, there 2"),
                          HasSubstr("extra: an unexpected part")));
  run.state.save(path);
  EXPECT_EQ(test::bytes_of_file(path), test::bytes_of_file(directory.path() / "before.h5"));
}

TEST_F(TrainingStateTest, AnotherModelOrOptimizerIsRefused) {
  Training(6).state.save(path);
  Training wide(8);
  EXPECT_THAT(message_of([&] { wide.state.load(path); }),
              AllOf(HasSubstr(path.string()), HasSubstr("in.weight: model f32 [8, 3], state f32 "
                                                        "[6, 3]")));
  const Tensor w = leaf({1});
  const std::vector<Parameter> parameters{{"w", w, Role::Weight}};
  Adam adam(parameters);
  adam.step(one_gradient(w, {1}));
  AdamW adamw(parameters, {.weight_decay = 0});
  EXPECT_THAT(message_of([&] { adamw.load_state(adam.state()); }),
              AllOf(HasSubstr("missing: AdamW.beta1"), HasSubstr("unexpected: Adam.amsgrad")));
}

TEST_F(TrainingStateTest, OptionsOfOptimizersAreSavedByName) {  // CASES OP-16
  const Tensor w = leaf({1});
  const std::vector<Parameter> parameters{{"w", w, Role::Weight}};
  const AdamOptions options{.lr = 0.1, .beta1 = 0.8, .beta2 = 0.95};
  const auto through_file = [&](const Optimizer& from, Optimizer& to) {
    save_checkpoint(path, {{{"optimizer", from.checkpoint()}}});
    to.prepare_restore (*load_checkpoint(path).find("optimizer"))();
  };
  std::vector<double> values;
  auto adam = std::make_unique<Adam>(parameters, options);
  for (const double gradient : {1., -.5, .25}) {
    auto next = std::make_unique<Adam>(parameters, options);
    through_file(*adam, *next);
    adam = std::move(next);
    adam->step(one_gradient(w, {gradient}));
    values.push_back(w.item());
  }
  EXPECT_NEAR(values[0], 0.900000001, 1e-14);
  EXPECT_NEAR(values[1], 0.8787540866308634, 1e-14);
  EXPECT_NEAR(values[2], 0.8478243279895495, 1e-14);
  Adam swapped(parameters, {.beta1 = 0.95, .beta2 = 0.8});
  EXPECT_THAT(message_of([&] { through_file(*adam, swapped); }),
              AllOf(HasSubstr("Adam.beta2: must be 0.8, state 0.95"), Not(HasSubstr("beta1"))));

  Sgd sgd(parameters, {.lr = 0.1, .momentum = 0.9});
  sgd.set_momentum(0.85);  // where a one-cycle schedule has it
  Sgd resumed(parameters, {.lr = 0.2, .momentum = 0.9});
  through_file(sgd, resumed);
  EXPECT_EQ(resumed.options().momentum, 0.85);
  EXPECT_EQ(resumed.lr(), 0.1);
  Sgd plain(parameters, {.lr = 0.1});
  EXPECT_THAT(message_of([&] { through_file(sgd, plain); }),
              HasSubstr("Sgd.momentum: must be 0, state 0.85"));
}

TEST_F(TrainingStateTest, RefusesNamesThatAreTaken) {
  Training run;
  std::int64_t other = 0;
  EXPECT_THROW(run.state.track("model", run.net), Error);
  EXPECT_THROW(run.state.track("progress", run.net), Error);
  EXPECT_THROW(run.state.track("step", other), Error);
  EXPECT_THROW(run.state.option("norm", 1.0), Error);
}

TEST_F(TrainingStateTest, VariablesOfAnotherKindAreRefused) {
  std::int64_t whole = 3;
  std::vector<double> list{1, 2};
  TrainingState a;
  a.track("x", whole).track("y", list);
  a.save(path);
  double real = 0;
  std::vector<std::int64_t> integers;
  TrainingState b;
  b.track("x", real).track("y", integers);
  EXPECT_THAT(message_of([&] { b.load(path); }),
              AllOf(HasSubstr("x: here float64, there int64"),
                    HasSubstr("y: here i64 of rank 1, there f64 [2]")));
}

}  // namespace
}  // namespace steady
