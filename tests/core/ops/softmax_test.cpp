#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <steadygrad/core/ops/softmax.hpp>
#include <steadygrad/core/tape.hpp>

#include "tests/core/ops/op_test.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/op_table.hpp"

namespace steady {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsNan;

const bool rows = register_ops("Softmax", {
                                              {.name = "last_axis",
                                               .f = [](Inputs in) { return softmax(in[0]); },
                                               .inputs = {real({3, 5})},
                                               .large = {real({300, 257})}},
                                              {.name = "first_axis",
                                               .f = [](Inputs in) { return softmax(in[0], 0); },
                                               .inputs = {real({4, 3})},
                                               .large = {real({257, 300})}},
                                              {.name = "middle_axis",
                                               .f = [](Inputs in) { return softmax(in[0], -2); },
                                               .inputs = {real({2, 4, 3})}},
                                              {.name = "log_last_axis",
                                               .f = [](Inputs in) { return log_softmax(in[0]); },
                                               .inputs = {real({3, 5})},
                                               .large = {real({300, 257})}},
                                              {.name = "log_first_axis",
                                               .f = [](Inputs in) { return log_softmax(in[0], 0); },
                                               .inputs = {real({4, 3})},
                                               .large = {real({257, 300})}},
                                          });

TEST(Softmax, EqualsTheReference) {
  for (const GoldenCase& golden : Golden("norms.h5").cases("softmax")) {
    SCOPED_TRACE(golden.path());
    const int axis = static_cast<int>(golden.attribute_int("dim"));
    expect_golden(golden, [&](GoldenInputs& in) { return softmax(in["x"], axis); });
  }
}

TEST(LogSoftmax, EqualsTheReference) {
  for (const GoldenCase& golden : Golden("norms.h5").cases("log_softmax")) {
    SCOPED_TRACE(golden.path());
    const int axis = static_cast<int>(golden.attribute_int("dim"));
    expect_golden(golden, [&](GoldenInputs& in) { return log_softmax(in["x"], axis); });
  }
}

TEST(Softmax, MaskedEntriesAreExactlyZeroAndAWhollyMaskedRowIsNaN) {
  constexpr double Masked = -std::numeric_limits<double>::infinity();
  const Tensor x = leaf({2, 3}, {0, Masked, 0, 1, 1, Masked});
  Tape tape;
  const Tensor y = softmax(x);
  EXPECT_THAT(numbers(y), ElementsAre(0.5, 0, 0.5, 0.5, 0.5, 0));
  const Gradients g =
      tape.backward(y, {.cotangent = Tensor::of({2, 3}, {4, 100, 0, 0, 2, 100}, Dtype::F64)});
  EXPECT_THAT(numbers(g[x]), ElementsAre(1, 0, -1, -0.5, 0.5, 0));
  EXPECT_THAT(numbers(softmax(Tensor::full({1, 3}, Masked))), Each(IsNan()));
}

TEST(Softmax, OfNoColumnsIsEmpty) {
  EXPECT_EQ(softmax(Tensor::empty({3, 0})).shape(), (Shape{3, 0}));
  EXPECT_EQ(log_softmax(Tensor::empty({0, 3}), 0).shape(), (Shape{0, 3}));
}

TEST(Softmax, RefusesWhatHasNoAxis) {
  EXPECT_THAT(message_of([] { (void)softmax(Tensor::scalar(1)); }),
              AllOf(HasSubstr("softmax"), HasSubstr("x f32 []")));
  EXPECT_THROW((void)softmax(Tensor::ones({2, 3}), 2), ShapeError);
  EXPECT_THROW((void)log_softmax(Tensor::ones({2, 3}), -3), ShapeError);
  EXPECT_THROW((void)log_softmax(ids({2}, {1, 2})), ShapeError);
  EXPECT_THROW((void)softmax(Tensor{}), ShapeError);
}

}  // namespace
}  // namespace steady
