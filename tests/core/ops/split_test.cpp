#include <steadygrad/core/ops/split.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/tape.hpp>

#include "tests/core/ops/op_test.hpp"
#include "tests/support/op_table.hpp"

namespace steady {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::HasSubstr;

const bool SplitTable =
    register_ops("Split", {{.name = "split",
                            .f =
                                [](Inputs in) {
                                  const std::int64_t part = in[0].dim(-1) / 3;
                                  const auto parts = split(in[0], {part, part, part});
                                  return parts[0] * parts[1] * parts[2];
                                },
                            .inputs = {real({2, 2, 6})},
                            .large = {real({100, 30, 96})}},
                           {.name = "split_with_an_unused_part",
                            .f =
                                [](Inputs in) {
                                  const auto parts = split(in[0], {2, in[0].dim(-1) - 2});
                                  return parts[0] * parts[0];
                                },
                            .inputs = {real({3, 5})},
                            .large = {real({3000, 50})}}});

TEST(Split, CutsTheLastAxisIntoTensorsOfTheirOwn) {
  const Tensor x = Tensor::of({2, 4}, {0, 1, 2, 3, 4, 5, 6, 7});
  const std::vector<Tensor> parts = split(x, {1, 3});
  EXPECT_EQ(parts[1].shape(), Shape({2, 3}));
  EXPECT_THAT(numbers(parts[0]), ElementsAre(0, 4));
  EXPECT_THAT(numbers(parts[1]), ElementsAre(1, 2, 3, 5, 6, 7));
  EXPECT_FALSE(parts[0].shares_storage_with(x));
}

TEST(Split, ExtentsThatDoNotFitAreRefused) {
  const Tensor x = Tensor::ones({2, 4});
  EXPECT_THAT(message_of([&] {
                (void)split(x, {1, 2});
              }),
              testing::AllOf(HasSubstr("split: extents must add up"), HasSubstr("[2, 4]")));
  EXPECT_THROW((void)split(x, {5, -1}), ShapeError);
  EXPECT_THROW((void)split(Tensor::scalar(1), {1}), ShapeError);
}

}  // namespace
}  // namespace steady
