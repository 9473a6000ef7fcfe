#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/loss.hpp>
#include <steadygrad/core/ops/matmul.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/tape.hpp>
#include <string>
#include <vector>

#include "tests/core/ops/op_test.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/op_table.hpp"

namespace steady {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::DoubleNear;
using testing::Each;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Pointwise;

/// Inputs: logits, target and, when there are three, class weights.
TensorFunction entropy(CrossEntropyOptions options) {
  return [options](Inputs in) {
    CrossEntropyOptions o = options;
    if (in.size() > 2) o.class_weight = in[2];
    return cross_entropy(in[0], in[1], o);
  };
}

const OpInput some_ignored = values(ids({5}, {1, -100, 0, 3, -100}));
const OpInput class_weights = real({4}, 0.5, 2).constant();

const bool rows = register_ops(
    "CrossEntropy",
    {
        {.name = "mean",
         .f = entropy({}),
         .inputs = {real({5, 4}), integers({5}, 0, 4)},
         .large = {real({700, 65}), integers({700}, 0, 65)}},
        {.name = "sum",
         .f = entropy({.reduction = Reduction::Sum}),
         .inputs = {real({5, 4}), integers({5}, 0, 4)},
         .large = {real({70, 65}), integers({70}, 0, 65)}},
        {.name = "none",
         .f = entropy({.reduction = Reduction::None}),
         .inputs = {real({2, 3, 4}), integers({2, 3}, 0, 4)},
         .large = {real({700, 65}), integers({700}, 0, 65)}},
        {.name = "single_row", .f = entropy({}), .inputs = {real({4}), integers({}, 0, 4)}},
        {.name = "ignored_rows", .f = entropy({}), .inputs = {real({5, 4}), some_ignored}},
        {.name = "everything_mean",
         .f = entropy({.label_smoothing = 0.1}),
         .inputs = {real({5, 4}), some_ignored, class_weights}},
        {.name = "everything_none",
         .f = entropy({.label_smoothing = 0.2, .reduction = Reduction::None}),
         .inputs = {real({5, 4}), some_ignored, class_weights}},
    });

/// The class axis is axis 1 in the file and the last one here.
Tensor classes_last(const Tensor& x) { return x.rank() == 3 ? transpose(x, 1, 2) : x; }

CrossEntropyOptions options_of(const GoldenCase& golden, GoldenInputs& in) {
  const std::string reduction = golden.attribute_string("reduction");
  return {.ignore_index = golden.attribute_int("ignore_index"),
          .label_smoothing = golden.attribute_double("label_smoothing"),
          .class_weight = in["class_weight"],
          .reduction = reduction == "mean"  ? Reduction::Mean
                       : reduction == "sum" ? Reduction::Sum
                                            : Reduction::None};
}

TEST(CrossEntropy, EqualsTheReference) {
  for (const GoldenCase& golden : Golden("ops.h5").cases("cross_entropy")) {
    SCOPED_TRACE(golden.path());
    if (golden.name() == "all_ignored_mean") continue;  // the next test
    expect_golden(golden, [&](GoldenInputs& in) {
      return cross_entropy(classes_last(in["x"]), in["target"], options_of(golden, in));
    });
  }
}

struct Outcome {
  double loss;
  std::vector<double> dlogits;
};

Outcome run(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options = {}) {
  const Tensor x = logits.detached_copy().set_requires_grad();
  Tape tape;
  const Tensor loss = cross_entropy(x, target, options);
  return {loss.item(), numbers(tape.backward(loss)[x])};
}

Tensor f64(const Shape& shape, std::initializer_list<double> elements) {
  return Tensor::of(shape, elements, Dtype::F64);
}

TEST(CrossEntropy, EveryTargetIgnoredGivesZeroAndNoCount) {  // CASES LS-01
  const Tensor logits = f64({2, 3}, {0.3, -1, 2, 1e4, -1e4, 0});
  const Tensor target = ids({2}, {-100, -100});
  for (const Reduction reduction : {Reduction::Mean, Reduction::Sum}) {
    const Outcome got = run(logits, target, {.reduction = reduction});
    EXPECT_EQ(got.loss, 0);
    EXPECT_THAT(got.dlogits, Each(0.0));
  }
  const CrossEntropyResult result = cross_entropy_with_count(logits, target);
  EXPECT_EQ(result.used, 0);
  EXPECT_EQ(result.weight, 0);
  // PyTorch's loss is NaN here, its gradient 0 like ours.
  const GoldenCase golden = Golden("ops.h5").group("/cross_entropy/all_ignored_mean");
  const Outcome other = run(golden.tensor("in/x"), golden.tensor("in/target"));
  EXPECT_EQ(other.loss, 0);
  EXPECT_THAT(other.dlogits, ElementsAreArray(numbers(golden.tensor("grad/x"))));
}

TEST(CrossEntropy, IgnoredRowsCountNowhere) {  // CASES LS-02
  const Tensor logits = f64({2, 3}, {1, 2, 3, 0, 0, 0});
  const Outcome all = run(logits, ids({2}, {2, 1}));
  EXPECT_NEAR(all.loss, 0.7531091265562451, 1e-15);
  const std::vector<double> all_expected{0.04501528658519022,  0.12236423552739882,
                                         -0.1673795221125891,  0.16666666666666666,
                                         -0.33333333333333337, 0.16666666666666666};
  EXPECT_THAT(all.dlogits, Pointwise(DoubleNear(1e-15), all_expected));

  const Outcome first = run(logits, ids({2}, {2, 255}), {.ignore_index = 255});
  EXPECT_NEAR(first.loss, 0.4076059644443804, 1e-15);
  const std::vector<double> first_expected{
      0.09003057317038043, 0.24472847105479764, -0.3347590442251782, 0, 0, 0};
  EXPECT_THAT(first.dlogits, Pointwise(DoubleNear(1e-15), first_expected));
  for (std::size_t i = 3; i < 6; ++i) EXPECT_EQ(first.dlogits[i], 0.0);
}

TEST(CrossEntropy, IgnoredRowsMayHoldAnything) {
  constexpr double NaN = std::numeric_limits<double>::quiet_NaN();
  const Outcome got = run(f64({2, 2}, {0, 0, NaN, NaN}), ids({2}, {0, -100}));
  EXPECT_NEAR(got.loss, std::log(2.0), 1e-15);
  EXPECT_THAT(got.dlogits, ElementsAreArray({-0.5, 0.5, 0.0, 0.0}));
}

TEST(CrossEntropy, InvalidTargetIsRefusedWithPlaceAndValue) {  // CASES LS-03
  const Tensor logits = Tensor::ones({2, 3});
  EXPECT_THAT(message_of([&] {
                (void)cross_entropy(logits, ids({2}, {0, -4}));
              }),
              AllOf(HasSubstr("target[1] = -4"), HasSubstr("3 classes")));
  EXPECT_THAT(message_of([&] {
                (void)cross_entropy(logits, ids({2}, {3, 0}));
              }),
              AllOf(HasSubstr("target[0] = 3"), HasSubstr("3 classes")));
}

TEST(CrossEntropy, MeanDividesByTheWeightsOfTheTargets) {  // CASES LS-05
  const Tensor logits = f64({2, 3}, {1, 2, 3, 0.5, 0, -0.5});
  const Tensor target = ids({2}, {2, 0});
  const Tensor weight = f64({3}, {1, 2, 10});
  const Outcome got = run(logits, target, {.class_weight = weight});
  EXPECT_NEAR(got.loss, 0.43239357409868534, 1e-15);
  const std::vector<double> expected{0.08184597560943677, 0.22248042823163425,
                                     -0.3043264038410711, -0.044865418994940544,
                                     0.02792689870168167, 0.01693852029325887};
  EXPECT_THAT(got.dlogits, Pointwise(DoubleNear(1e-15), expected));
  const CrossEntropyResult sum = cross_entropy_with_count(
      logits, target, {.class_weight = weight, .reduction = Reduction::Sum});
  EXPECT_EQ(sum.weight, 11);
  EXPECT_EQ(sum.used, 2);
  EXPECT_NEAR(sum.loss.item() / 2, 2.3781646575427695, 1e-14);
}

TEST(CrossEntropy, ZeroTotalWeightGivesZero) {  // CASES LS-05, LS-01
  const Outcome got = run(f64({1, 2}, {1, 2}), ids({1}, {0}),
                          {.label_smoothing = 0.1, .class_weight = f64({2}, {0, 1})});
  EXPECT_EQ(got.loss, 0);
  EXPECT_THAT(got.dlogits, Each(0.0));
}

TEST(CrossEntropy, CountsJoinBatchesOfUnequalSize) {  // CASES AG-10
  const double e = std::exp(1.0);
  // Losses log(1 + exp(x)): 2 for the first row, 1 for the others.
  const Tensor logits = f64(
      {4, 2}, {0, std::log(e * e - 1), 0, std::log(e - 1), 0, std::log(e - 1), 0, std::log(e - 1)});
  const Tensor target = ids({4}, {0, 0, 0, 0});
  const Outcome joined = run(logits, target);
  EXPECT_NEAR(joined.loss, 1.25, 1e-15);

  const Tensor x = logits.detached_copy().set_requires_grad();
  double loss = 0;
  double weight = 0;
  Gradients total;
  const std::vector<std::array<std::int64_t, 2>> parts{{0, 1}, {1, 4}};
  for (const auto& [begin, end] : parts) {
    Tape tape;
    const CrossEntropyResult part =
        cross_entropy_with_count(slice(x, 0, begin, end), slice(target, 0, begin, end));
    Gradients g = tape.backward(part.loss);
    g *= part.weight;
    total += g;
    loss += part.loss.item() * part.weight;
    weight += part.weight;
  }
  total *= 1 / weight;
  EXPECT_NEAR(loss / weight, 1.25, 1e-15);
  EXPECT_THAT(numbers(total[x]), Pointwise(DoubleNear(1e-16), joined.dlogits));
}

TEST(CrossEntropy, GradientsOfATableTiedToTheHeadAddUp) {  // CASES AG-08
  const Tensor w = leaf({2, 2}, {1, 2, 3, 4});
  Tape tape;
  const Tensor logits = linear(gather_rows(w, ids({1}, {1})), w);
  const Gradients g = tape.backward(cross_entropy(logits, ids({1}, {0})));
  EXPECT_THAT(numbers(logits), ElementsAreArray({11.0, 25.0}));
  EXPECT_EQ(g.size(), 1U);
  const std::vector<double> expected{-2.999997505415917, -3.9999966738878894, 4.999995842359861,
                                     5.999995010831833};
  EXPECT_THAT(numbers(g[w]), Pointwise(DoubleNear(1e-12), expected));
}

TEST(CrossEntropy, BadTargetAmongManyThreadsIsCatchable) {  // CASES RT-12
  const ThreadCount guard(8);
  const Tensor logits = Tensor::zeros({10000, 4});
  Tensor target = Tensor::zeros({10000}, Dtype::I64);
  target.mutable_data<std::int64_t>()[7777] = 4;
  target.mutable_data<std::int64_t>()[9999] = -1;
  EXPECT_THAT(message_of([&] { (void)cross_entropy(logits, target); }),
              HasSubstr("target[7777] = 4"));
  // The same raised inside a parallel region: that of the first failing chunk arrives.
  EXPECT_THAT(message_of([&] {
                parallel_for(10000, 500, [&](std::int64_t begin, std::int64_t end) {
                  (void)cross_entropy(slice(logits, 0, begin, end), slice(target, 0, begin, end));
                });
              }),
              HasSubstr("target[277] = 4"));
  target.mutable_data<std::int64_t>()[7777] = 0;
  target.mutable_data<std::int64_t>()[9999] = 0;
  EXPECT_NEAR(cross_entropy(logits, target).item(), std::log(4.0), 1e-6);
}

// A head over a large vocabulary: the logits are by far the largest tensor.
struct Head {
  Tensor x = make_inputs({real({64, 4})}, Dtype::F32)[0];
  Tensor weight = make_inputs({real({3000, 4})}, Dtype::F32)[0];
  Tensor target = make_inputs({integers({64}, 0, 3000)}, Dtype::F32)[0];
  std::int64_t logits_bytes = 64 * 3000 * 4;
};

TEST(CrossEntropy, NeedsNoSecondBufferForLogitsThatNobodyHolds) {
  const Head head;
  Tape tape;
  const std::int64_t before = memory_stats().live;
  const Tensor loss = cross_entropy(linear(head.x, head.weight), head.target);
  const std::int64_t kept = memory_stats().live - before;
  EXPECT_GE(kept, head.logits_bytes);
  EXPECT_LT(kept, head.logits_bytes + head.logits_bytes / 50);  // no probabilities
  reset_peak_memory();
  const Gradients g = tape.backward(loss);
  EXPECT_LT(memory_stats().peak - before, head.logits_bytes + head.logits_bytes / 4);
  EXPECT_EQ(g.size(), 2U);
}

TEST(CrossEntropy, LogitsThatSomebodyHoldsKeepTheirValues) {
  const Head head;
  const Tensor values = linear(head.x, head.weight);
  const auto gradient = [&](const Tensor& loss, Tape& tape, bool keep) {
    return tape.backward(loss, {.keep = keep})[head.weight];
  };
  Tape unheld;
  const Tensor want =
      gradient(cross_entropy(linear(head.x, head.weight), head.target), unheld, false);
  {
    Tape tape;
    const Tensor logits = linear(head.x, head.weight);
    EXPECT_TRUE(same_bits(gradient(cross_entropy(logits, head.target), tape, false), want));
    EXPECT_TRUE(same_bits(logits, values));
  }
  {  // by another shape of the same memory
    Tape tape;
    const Tensor logits = linear(head.x, head.weight);
    const Tensor loss = cross_entropy(reshape(logits, {8, 8, 3000}), reshape(head.target, {8, 8}));
    EXPECT_TRUE(same_bits(gradient(loss, tape, false), want));
    EXPECT_TRUE(same_bits(logits, values));
  }
  {  // by the tape, for a second backward
    Tape tape;
    const Tensor loss = cross_entropy(linear(head.x, head.weight), head.target);
    for (const bool keep : {true, false})
      EXPECT_TRUE(same_bits(gradient(loss, tape, keep), want)) << keep;
  }
  {  // by another operation that saved them
    Tape tape;
    Tensor logits = exp(linear(head.x, head.weight));
    const Tensor from_exp = cross_entropy(logits, head.target);
    logits.reset();
    const Tensor got = gradient(from_exp, tape, false);
    Tape other;
    logits = exp(linear(head.x, head.weight));
    EXPECT_TRUE(same_bits(gradient(cross_entropy(logits, head.target), other, false), got));
  }
}

TEST(CrossEntropy, RefusesAThirdDerivativeByName) {
  const Tensor x = leaf({1, 2}, {1, 2});
  Tape tape;
  const Tensor loss = cross_entropy(x, ids({1}, {0}));
  const Tensor direction = f64({1, 2}, {1, 0});
  const Gradients first = tape.backward(loss, {.record = true});
  const Gradients second = tape.backward(first[x], {.record = true, .cotangent = direction});
  EXPECT_THAT(message_of([&] { (void)tape.backward(second[x], {.cotangent = direction}); }),
              HasSubstr("cross_entropy_second: this operation has no backward"));
}

TEST(CrossEntropy, RefusesWhatDoesNotFit) {
  const Tensor logits = Tensor::ones({2, 3});
  const Tensor target = ids({2}, {0, 1});
  EXPECT_THAT(message_of([&] {
                (void)cross_entropy(logits, ids({3}, {0, 1, 2}));
              }),
              AllOf(HasSubstr("class axis last"), HasSubstr("logits f32 [2, 3]"),
                    HasSubstr("target i64 [3]")));
  EXPECT_THROW((void)cross_entropy(logits, Tensor::zeros({2})), ShapeError);
  EXPECT_THROW((void)cross_entropy(logits, Tensor{}), ShapeError);
  EXPECT_THROW((void)cross_entropy(Tensor::empty({2, 0}), target), ShapeError);
  EXPECT_THROW((void)cross_entropy(logits, target, {.class_weight = Tensor::ones({2})}),
               ShapeError);
  EXPECT_THROW((void)cross_entropy(logits, target, {.class_weight = Tensor::ones({3}, Dtype::F64)}),
               ShapeError);
  EXPECT_THAT(message_of([&] { (void)cross_entropy(logits, target, {.label_smoothing = 1.5}); }),
              HasSubstr("label_smoothing"));
  const Tensor learned = Tensor::ones({3}).set_requires_grad();
  Tape tape;
  EXPECT_THAT(message_of([&] { (void)cross_entropy(logits, target, {.class_weight = learned}); }),
              HasSubstr("class_weight is a constant"));
}

}  // namespace
}  // namespace steady
