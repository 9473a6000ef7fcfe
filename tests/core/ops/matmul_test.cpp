#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/ops/matmul.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/tape.hpp>
#include <vector>

#include "tests/core/ops/op_test.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/op_table.hpp"

namespace steady {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Tensor product(Inputs in) { return matmul(in[0], in[1]); }
Tensor affine(Inputs in) { return linear(in[0], in[1], in.size() > 2 ? in[2] : Tensor{}); }

const bool products = register_ops(
    "Matmul",
    {
        {.name = "matrices",
         .f = product,
         .inputs = {real({3, 4}), real({4, 5})},
         .large = {real({130, 70}), real({70, 90})},
         .float32_tolerance = 2e-5},
        {.name = "dot", .f = product, .inputs = {real({4}), real({4})}},
        {.name = "row_times_matrix", .f = product, .inputs = {real({4}), real({4, 5})}},
        {.name = "batch_times_column", .f = product, .inputs = {real({2, 3, 4}), real({4})}},
        {.name = "batches",
         .f = product,
         .inputs = {real({2, 3, 4}), real({2, 4, 2})},
         .large = {real({16, 33, 20}), real({16, 20, 17})}},
        {.name = "batch_times_matrix",
         .f = product,
         .inputs = {real({2, 3, 4}), real({4, 2})},
         .large = {real({16, 33, 20}), real({20, 17})}},
        {.name = "matrix_times_batch",
         .f = product,
         .inputs = {real({3, 4}), real({2, 4, 2})},
         .large = {real({33, 20}), real({16, 20, 17})}},
        {.name = "broadcast_both_ways",
         .f = product,
         .inputs = {real({2, 1, 3, 2}), real({3, 2, 2})}},
        {.name = "constant_left", .f = product, .inputs = {real({3, 4}).constant(), real({4, 2})}},
        {.name = "constant_right", .f = product, .inputs = {real({3, 4}), real({4, 2}).constant()}},
        {.name = "transposed_left",
         .f = [](Inputs in) { return matmul(in[0], in[1], {.transpose_a = true}); },
         .inputs = {real({2, 4, 3}), real({4, 2})}},
        {.name = "transposed_right",
         .f = [](Inputs in) { return matmul(in[0], in[1], {.transpose_b = true}); },
         .inputs = {real({2, 3, 4}), real({2, 2, 4})}},
        {.name = "transposed_right_matrix",
         .f = [](Inputs in) { return matmul(in[0], in[1], {.transpose_b = true}); },
         .inputs = {real({2, 3, 4}), real({2, 4})}},
        {.name = "transposed_both",
         .f =
             [](Inputs in) {
               return matmul(in[0], in[1], {.transpose_a = true, .transpose_b = true});
             },
         .inputs = {real({4, 3}), real({2, 4})}},
    });

const bool layers = register_ops(
    "Linear",
    {
        {.name = "rows",
         .f = affine,
         .inputs = {real({3, 4}), real({5, 4}), real({5})},
         .large = {real({300, 70}), real({90, 70}), real({90})},
         .float32_tolerance = 2e-5},
        {.name = "vector", .f = affine, .inputs = {real({4}), real({5, 4}), real({5})}},
        {.name = "sequence", .f = affine, .inputs = {real({2, 3, 4}), real({2, 4}), real({2})}},
        {.name = "no_bias", .f = affine, .inputs = {real({3, 4}), real({5, 4})}},
        {.name = "frozen_weight",
         .f = affine,
         .inputs = {real({3, 4}), real({5, 4}).constant(), real({5})}},
        {.name = "constant_input",
         .f = affine,
         .inputs = {real({3, 4}).constant(), real({5, 4}), real({5})}},
    });

TEST(Matmul, EqualsTheReference) {
  for (const GoldenCase& golden : Golden("ops.h5").cases("matmul")) {
    SCOPED_TRACE(golden.path());
    expect_golden(golden, [](GoldenInputs& in) { return matmul(in["a"], in["b"]); });
  }
}

TEST(Linear, EqualsTheReference) {
  for (const GoldenCase& golden : Golden("ops.h5").cases("linear")) {
    SCOPED_TRACE(golden.path());
    expect_golden(golden, [](GoldenInputs& in) {
      return linear(in["x"], in["weight"], in.contains("bias") ? in["bias"] : Tensor{});
    });
  }
}

TEST(Matmul, TransposeOptionsReadSwappedAxes) {
  const Tensor a = Tensor::of({2, 3}, {1, 2, 3, 4, 5, 6}, Dtype::F64);
  const Tensor b = Tensor::of({2, 2}, {1, -1, 2, 1}, Dtype::F64);
  EXPECT_THAT(numbers(matmul(a, b, {.transpose_a = true})), ElementsAre(9, 3, 12, 3, 15, 3));
  EXPECT_THAT(numbers(matmul(b, a, {.transpose_a = true})), ElementsAre(9, 12, 15, 3, 3, 3));
  EXPECT_THAT(numbers(matmul(a, a, {.transpose_b = true})), ElementsAre(14, 32, 32, 77));
}

TEST(Matmul, HasAThirdDerivative) {
  const Tensor x = leaf({1, 1}, {2});
  Tape tape;
  const Tensor cube = matmul(matmul(x, x), x);
  const Gradients first = tape.backward(cube, {.record = true});
  const Gradients second = tape.backward(first[x], {.record = true});
  const Gradients third = tape.backward(second[x]);
  EXPECT_EQ(first[x].item(), 12);
  EXPECT_EQ(second[x].item(), 12);
  EXPECT_EQ(third[x].item(), 6);
}

TEST(Matmul, EmptyExtentsGiveZerosAndEmptyBatches) {
  const Tensor a = Tensor::empty({3, 0}, Dtype::F64).set_requires_grad();
  const Tensor b = Tensor::empty({0, 2}, Dtype::F64);
  EXPECT_THAT(numbers(matmul(a, b)), ElementsAre(0, 0, 0, 0, 0, 0));
  const Tensor w = Tensor::ones({2, 3}, Dtype::F64).set_requires_grad();
  Tape tape;
  const Tensor none = linear(Tensor::empty({0, 3}, Dtype::F64), w);
  EXPECT_EQ(none.shape(), (Shape{0, 2}));
  const Gradients g = tape.backward(none, {.cotangent = Tensor::empty({0, 2}, Dtype::F64)});
  EXPECT_THAT(numbers(g[w]), ElementsAre(0, 0, 0, 0, 0, 0));
}

TEST(Matmul, RefusesWhatDoesNotFit) {
  const Tensor a = Tensor::ones({2, 3});
  EXPECT_THAT(message_of([&] { (void)matmul(a, a); }),
              AllOf(HasSubstr("matmul: inner extents"), HasSubstr("a f32 [2, 3]"),
                    HasSubstr("b f32 [2, 3]")));
  EXPECT_THAT(message_of([&] { (void)matmul(a, Tensor::ones({3}), {.transpose_b = true}); }),
              HasSubstr("a vector cannot be transposed"));
  EXPECT_THROW((void)matmul(a, Tensor::scalar(1)), ShapeError);
  EXPECT_THROW((void)matmul(a, Tensor::ones({3, 2}, Dtype::F64)), ShapeError);
  EXPECT_THROW((void)matmul(ids({1, 1}, {1}), ids({1, 1}, {1})), ShapeError);
  EXPECT_THROW((void)matmul(Tensor::ones({2, 2, 3}), Tensor::ones({3, 3, 2})), ShapeError);
  EXPECT_THROW((void)matmul(Tensor{}, a), ShapeError);
}

TEST(Linear, RefusesWhatDoesNotFit) {
  const Tensor x = Tensor::ones({2, 3});
  EXPECT_THAT(message_of([&] {
                (void)linear(x, Tensor::ones({3, 4}));
              }),
              AllOf(HasSubstr("linear: x [..., in]"), HasSubstr("x f32 [2, 3]"),
                    HasSubstr("weight f32 [3, 4]")));
  EXPECT_THAT(message_of([&] {
                (void)linear(x, Tensor::ones({4, 3}), Tensor::ones({3}));
              }),
              HasSubstr("bias f32 [3]"));
  EXPECT_THROW((void)linear(x, Tensor::ones({4, 3}, Dtype::F64)), ShapeError);
  EXPECT_THROW((void)linear(Tensor::scalar(1), Tensor::ones({1, 1})), ShapeError);
}

}  // namespace
}  // namespace steady
