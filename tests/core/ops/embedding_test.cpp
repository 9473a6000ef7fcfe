#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/embedding.hpp>
#include <steadygrad/core/tape.hpp>

#include "tests/core/ops/op_test.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/op_table.hpp"

namespace steady {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const OpInput repeated = values(ids({2, 3}, {1, 3, 1, 0, 1, 3}));

const bool rows = register_ops(
    "Embedding",
    {
        {.name = "repeated_ids",
         .f = [](Inputs in) { return embedding(in[0] * in[0], in[1]); },
         .inputs = {real({4, 3}), repeated},
         .large = {real({50, 300}), integers({20, 40}, 0, 50)}},
        {.name = "padding",
         .f = [](Inputs in) { return embedding(in[0] * in[0], in[1], {.padding_idx = 2}); },
         .inputs = {real({4, 3}),
                    repeated},  // without row 2: its missing gradient is no derivative
         .large = {real({50, 300}), integers({20, 40}, 0, 50)}},
    });

TEST(Embedding, EqualsTheReference) {
  for (const GoldenCase& golden : Golden("ops.h5").cases("embedding")) {
    SCOPED_TRACE(golden.path());
    const std::int64_t padding = golden.attribute_int("padding_idx");
    expect_golden(golden, [&](GoldenInputs& in) {
      return embedding(in["weight"], in["ids"], {.padding_idx = padding});
    });
  }
}

TEST(Embedding, RepeatedIdsAddUp) {  // CASES LS-09
  const Tensor table = leaf({3, 2}, {1, 2, 3, 4, 5, 6});
  const Tensor dy = Tensor::of({3, 2}, {1, 2, 10, 20, 5, 6}, Dtype::F64);
  for (const Dtype dtype : {Dtype::I64, Dtype::I32}) {
    Tape tape;
    const Tensor y = embedding(table, ids({3}, {1, 1, 2}).detached_copy(dtype));
    EXPECT_THAT(numbers(y), ElementsAre(3, 4, 3, 4, 5, 6));
    EXPECT_THAT(numbers(tape.backward(y, {.cotangent = dy})[table]),
                ElementsAre(0, 0, 11, 22, 5, 6));
  }
}

TEST(Embedding, PaddingRowPassesNothingInASecondDerivative) {
  const Tensor table = leaf({3, 2}, {1, 2, 3, 4, 5, 6});
  const Tensor dy = leaf({3, 2}, {1, 2, 10, 20, 5, 6});
  Tape tape;
  const Tensor y = embedding(table, ids({3}, {1, 0, 1}), {.padding_idx = 1});
  EXPECT_THAT(numbers(y), ElementsAre(3, 4, 1, 2, 3, 4));
  const Gradients first = tape.backward(y, {.record = true, .cotangent = dy});
  EXPECT_THAT(numbers(first[table]), ElementsAre(10, 20, 0, 0, 0, 0));
  const Tensor direction = Tensor::of({3, 2}, {1, 2, 3, 4, 5, 6}, Dtype::F64);
  EXPECT_THAT(numbers(tape.backward(first[table], {.cotangent = direction})[dy]),
              ElementsAre(0, 0, 1, 2, 0, 0));
}

TEST(Embedding, BadIdIsRefusedWithPlaceAndTable) {  // CASES LS-09
  const Tensor table = Tensor::ones({3, 2});
  EXPECT_THAT(message_of([&] {
                (void)embedding(table, ids({2, 2}, {0, 1, 3, -1}));
              }),
              AllOf(HasSubstr("embedding: "), HasSubstr("ids[2] = 3 with 3 rows")));
  EXPECT_THAT(message_of([&] { (void)embedding(table, ids({1}, {-1})); }),
              HasSubstr("ids[0] = -1 with 3 rows"));
}

TEST(Embedding, BadIdAmongManyThreadsIsCatchable) {  // CASES RT-12
  const ThreadCount guard(8);
  const Tensor table = Tensor::ones({3, 2});
  Tensor many = Tensor::zeros({10000}, Dtype::I64);
  many.mutable_data<std::int64_t>()[7777] = 3;
  many.mutable_data<std::int64_t>()[9999] = 4;
  EXPECT_THAT(message_of([&] { (void)embedding(table, many); }), HasSubstr("ids[7777] = 3"));
  many.mutable_data<std::int64_t>()[7777] = 0;
  many.mutable_data<std::int64_t>()[9999] = 0;
  EXPECT_EQ(embedding(table, many).shape(), (Shape{10000, 2}));
}

TEST(Embedding, RefusesWhatDoesNotFit) {
  const Tensor table = Tensor::ones({3, 2});
  EXPECT_THAT(message_of([&] { (void)embedding(Tensor::ones({3}), ids({1}, {0})); }),
              AllOf(HasSubstr("table [rows, width]"), HasSubstr("table f32 [3]")));
  EXPECT_THROW((void)embedding(table, Tensor::zeros({2})), ShapeError);
  EXPECT_THROW((void)embedding(table, Tensor{}), ShapeError);
  EXPECT_THROW((void)embedding(ids({1, 1}, {0}), ids({1}, {0})), ShapeError);
  EXPECT_THROW((void)embedding(table, ids({1}, {0}), {.padding_idx = 3}), Error);
  EXPECT_THROW((void)embedding(table, ids({1}, {0}), {.padding_idx = -2}), Error);
  EXPECT_EQ(embedding(table, ids({0}, {})).shape(), (Shape{0, 2}));
}

}  // namespace
}  // namespace steady
