// Five training steps of a small CNN against PyTorch: losses, gradients, running statistics,
// weights, and evaluation before and after.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/loss.hpp>
#include <steadygrad/core/ops/pool.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/conv2d.hpp>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <steadygrad/optim/sgd.hpp>
#include <string>
#include <vector>

#include "tests/layers/golden_models.hpp"
#include "tests/support/golden.hpp"

namespace steady {
namespace {

using testing_support::expect_close;
using testing_support::Golden;
using testing_support::GoldenCase;
using testing_support::GoldenCnn;
using testing_support::read_cnn_state;
using testing_support::step_of;

void expect_state(const GoldenCnn& model, const GoldenCase& cnn, const std::string& group,
                  double tolerance) {
  for (const NamedTensor& want : read_cnn_state(cnn, group)) {
    const Tensor got = find(model.state(), want.name);
    ASSERT_TRUE(got.defined()) << want.name;
    SCOPED_TRACE(group + " " + want.name);
    if (want.value.dtype() == Dtype::I64) {
      EXPECT_EQ(got.item(), want.value.item());
    } else {
      expect_close(got.detached_copy(Dtype::F64), want.value, tolerance);
    }
  }
}

class GoldenTraining : public testing::TestWithParam<Dtype> {};

TEST_P(GoldenTraining, FiveStepsFollowPyTorch) {
  const Dtype dtype = GetParam();
  const double tolerance = dtype == Dtype::F64 ? 1e-10 : 1e-5;
  const double later = dtype == Dtype::F64 ? 1e-9 : 1e-4;
  const GoldenCase cnn = Golden("models.h5").group("/cnn");
  GoldenCnn model({});
  model.to(dtype);
  model.load(read_cnn_state(cnn, "state"));
  const Tensor images = cnn.tensor("in/x").detached_copy(dtype);  // [5, 8, 1, 8, 8]: C = 1
  const Tensor target = cnn.tensor("in/target");
  const auto batch = [&](std::int64_t step) {
    return reshape(step_of(images, step), {8, 8, 8, 1});
  };
  const auto eval_logits = [&] {
    model.eval();
    const Tensor logits = model(batch(0)).detached_copy(Dtype::F64);
    model.train();
    return logits;
  };
  expect_close(eval_logits(), cnn.tensor("before/eval_logits_x0"), tolerance);

  Sgd sgd(model.parameters(), {.lr = cnn.attribute_double("lr"),
                               .momentum = cnn.attribute_double("momentum"),
                               .weight_decay = cnn.attribute_double("weight_decay"),
                               .decay_roles = RoleSet::all()});
  for (std::int64_t step = 0; step < 5; ++step) {
    Tape tape;
    Tensor x = batch(step).detached_copy();
    x.set_requires_grad();
    const Tensor logits = model(x);
    const Tensor loss = cross_entropy(logits, step_of(target, step));
    const Gradients gradients = tape.backward(loss);
    EXPECT_NEAR(loss.item(), cnn.tensor("losses").data<double>()[static_cast<std::size_t>(step)],
                step == 0 ? tolerance : later);
    if (step == 0) {
      expect_close(logits.detached_copy(Dtype::F64), cnn.tensor("step_0/logits"), tolerance);
      expect_close(reshape(gradients[x], {8, 1, 8, 8}).detached_copy(Dtype::F64),
                   cnn.tensor("step_0/grad_x"), tolerance);
      const State want = read_cnn_state(cnn, "step_0/grad");
      EXPECT_EQ(gradients.size(), want.size() + 1);
      for (const Parameter& p : model.parameters()) {
        SCOPED_TRACE(p.name);
        ASSERT_TRUE(gradients.contains(p.value));
        expect_close(gradients[p.value].detached_copy(Dtype::F64), find(want, p.name), tolerance);
      }
    }
    sgd.step(gradients);
    if (step == 0) expect_state(model, cnn, "state_after_1", tolerance);
  }
  expect_state(model, cnn, "state_after_5", later);
  expect_close(eval_logits(), cnn.tensor("after/eval_logits_x0"), later);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, GoldenTraining, testing::Values(Dtype::F64, Dtype::F32));

/// Weights, buffers and losses of three training steps in float32, as bits.
std::vector<std::uint32_t> train_bits(const std::string& norm, int threads) {
  const int before = num_threads();
  set_num_threads(threads);
  GoldenCnn model({.norm = NormSpec::parse(norm), .side = 28});
  model.initialize(3);
  Sgd sgd(model.parameters(), {.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-3});
  Random random(5, "training bits");
  std::vector<std::uint32_t> bits;
  for (int step = 0; step < 3; ++step) {
    Tensor x = Tensor::empty({37, 28, 28, 1});
    for (float& v : x.mutable_data<float>()) v = static_cast<float>(random.normal());
    Tensor y = Tensor::empty({37}, Dtype::I64);
    for (std::int64_t& v : y.mutable_data<std::int64_t>()) v = random.below(10);
    Tape tape;
    const Tensor loss = cross_entropy(model(x), y);
    sgd.step(tape.backward(loss));
    bits.push_back(std::bit_cast<std::uint32_t>(loss.data<float>()[0]));
  }
  for (const NamedTensor& t : model.state()) {
    if (t.value.dtype() != Dtype::F32) continue;
    for (const float v : t.value.data<float>()) bits.push_back(std::bit_cast<std::uint32_t>(v));
  }
  set_num_threads(before);
  return bits;
}

class TrainingBits : public testing::TestWithParam<const char*> {};

TEST_P(TrainingBits, AreTheSameForAnyNumberOfThreads) {  // CASES RT-01
  const std::vector<std::uint32_t> one = train_bits(GetParam(), 1);
  for (const int threads : {2, 3, 8}) {
    EXPECT_TRUE(one == train_bits(GetParam(), threads)) << threads << " threads";
  }
  EXPECT_TRUE(one == train_bits(GetParam(), 1));
}

INSTANTIATE_TEST_SUITE_P(Norms, TrainingBits,
                         testing::Values("none", "batch", "layer", "layer(over=sample)", "rms"));

TEST(TrainingControl, ExchangingTheNormLeavesOtherInitialWeightsBitIdentical) {
  GoldenCnn batch({.norm = NormSpec::parse("batch")});
  GoldenCnn none({.norm = NormSpec::parse("none")});
  batch.initialize(9);
  none.initialize(9);
  for (const Parameter& p : none.parameters()) {
    const Tensor other = find(batch.state(), p.name);
    ASSERT_TRUE(other.defined()) << p.name;
    EXPECT_THAT(p.value.data<float>(), testing::ElementsAreArray(other.data<float>())) << p.name;
  }
}

}  // namespace
}  // namespace steady
