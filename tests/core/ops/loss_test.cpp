#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <steadygrad/core/ops/loss.hpp>
#include <steadygrad/core/tape.hpp>
#include <string>

#include "tests/core/ops/op_test.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/op_table.hpp"

namespace steady {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::HasSubstr;

TensorFunction squared_error(Reduction reduction) {
  return [reduction](Inputs in) { return mse(in[0], in[1], reduction); };
}

/// Inputs: logits, target, pos_weight, weight.
Tensor weighted_bce(Inputs in) {
  return bce_with_logits(in[0], in[1], {.pos_weight = in[2], .weight = in[3]});
}

const bool errors = register_ops(
    "Mse",
    {
        {.name = "mean",
         .f = squared_error(Reduction::Mean),
         .inputs = {real({3, 4}), real({3, 4})},
         .large = {real({300, 257}), real({300, 257})}},
        {.name = "sum", .f = squared_error(Reduction::Sum), .inputs = {real({5}), real({5})}},
        {.name = "none",
         .f = squared_error(Reduction::None),
         .inputs = {real({3, 2}), real({3, 2}).constant()}},
    });

const bool logistic = register_ops(
    "BceWithLogits",
    {
        {.name = "mean",
         .f = [](Inputs in) { return bce_with_logits(in[0], in[1]); },
         .inputs = {real({3, 4}), real({3, 4}, 0, 1).constant()},
         .large = {real({300, 257}), real({300, 257}, 0, 1).constant()}},
        {.name = "weighted",
         .f = weighted_bce,
         .inputs = {real({3, 4}), real({3, 4}, 0, 1), real({4}, 0.5, 2), real({3, 1}, 0.5, 2)}},
        {.name = "none",
         .f =
             [](Inputs in) {
               return bce_with_logits(in[0], in[1], {.reduction = Reduction::None});
             },
         .inputs = {real({3, 2}), real({3, 2}, 0, 1)}},
    });

Reduction reduction_of(const GoldenCase& golden) {
  const std::string name = golden.attribute_string("reduction");
  return name == "mean" ? Reduction::Mean : name == "sum" ? Reduction::Sum : Reduction::None;
}

TEST(Mse, EqualsTheReference) {
  for (const GoldenCase& golden : Golden("ops.h5").cases("mse")) {
    SCOPED_TRACE(golden.path());
    expect_golden(
        golden, [&](GoldenInputs& in) { return mse(in["x"], in["target"], reduction_of(golden)); });
  }
}

TEST(BceWithLogits, EqualsTheReference) {
  for (const GoldenCase& golden : Golden("ops.h5").cases("bce_with_logits")) {
    SCOPED_TRACE(golden.path());
    expect_golden(golden, [&](GoldenInputs& in) {
      return bce_with_logits(in["x"], in["target"],
                             {.pos_weight = in["pos_weight"],
                              .weight = in["weight"],
                              .reduction = reduction_of(golden)});
    });
  }
}

TEST(BceWithLogits, KeepsItsDigitsWhereTheLossIsSmall) {
  // log1p(exp(-30)) in float32; x + softplus(-x) would cancel to 0.
  const Tensor loss = bce_with_logits(Tensor::of({2}, {-30, 30}), Tensor::of({2}, {0, 1}),
                                      {.reduction = Reduction::None});
  for (const double v : numbers(loss)) EXPECT_NEAR(v / std::exp(-30.0), 1, 1e-6);
}

TEST(Mse, RefusesToBroadcast) {  // CASES LS-15
  const Tensor prediction = Tensor::of({3}, {1, 2, 3}, Dtype::F64);
  EXPECT_THAT(message_of([&] {
                (void)mse(prediction, Tensor::of({3, 1}, {1, 2, 3}, Dtype::F64));
              }),
              AllOf(HasSubstr("mse: shapes must be equal"), HasSubstr("prediction f64 [3]"),
                    HasSubstr("target f64 [3, 1]")));
  EXPECT_EQ(mse(prediction, Tensor::of({3}, {1, 2, 3}, Dtype::F64)).item(), 0);
}

TEST(Losses, RefuseWhatDoesNotFit) {
  const Tensor x = Tensor::ones({2, 3});
  EXPECT_THROW((void)mse(x, Tensor::ones({2, 3}, Dtype::F64)), ShapeError);
  EXPECT_THROW((void)mse(ids({1}, {1}), ids({1}, {1})), ShapeError);
  EXPECT_THROW((void)mse(Tensor::empty({0, 3}), Tensor::empty({0, 3})), ShapeError);
  EXPECT_EQ(mse(Tensor::empty({0, 3}), Tensor::empty({0, 3}), Reduction::Sum).item(), 0);
  EXPECT_THROW((void)mse(x, Tensor{}), ShapeError);
  EXPECT_THAT(message_of([&] { (void)bce_with_logits(x, Tensor::ones({3})); }),
              AllOf(HasSubstr("bce_with_logits"), HasSubstr("target f32 [3]")));
  EXPECT_THAT(message_of([&] {
                (void)bce_with_logits(x, x, {.pos_weight = Tensor::ones({4, 2, 3})});
              }),
              AllOf(HasSubstr("pos_weight f32 [4, 2, 3]"), HasSubstr("logits f32 [2, 3]")));
}

}  // namespace
}  // namespace steady
