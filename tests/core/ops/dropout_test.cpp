#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <steadygrad/core/ops/dropout.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/core/tape.hpp>
#include <vector>

#include "tests/core/ops/op_test.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/op_table.hpp"

namespace steady {
namespace {

using namespace testing_support;
using testing::Each;
using testing::HasSubstr;

const bool rows =
    register_ops("Dropout", {
                                {.name = "some",
                                 .f = [](Inputs in) { return dropout(in[0], 0.3, 1, "drop", 5); },
                                 .inputs = {real({4, 5})},
                                 .large = {real({300, 257})}},
                                {.name = "none",
                                 .f = [](Inputs in) { return dropout(in[0], 0, 1, "drop"); },
                                 .inputs = {real({4, 5})}},
                                {.name = "all",
                                 .f = [](Inputs in) { return dropout(in[0], 1, 1, "drop"); },
                                 .inputs = {real({4, 5})}},
                            });

TEST(Dropout, EqualsTheReferenceWithoutDropping) {
  for (const GoldenCase& golden : Golden("ops.h5").cases("dropout")) {
    SCOPED_TRACE(golden.path());
    const double p = golden.attribute_double("p");
    ASSERT_EQ(p, 0);
    expect_golden(golden, [&](GoldenInputs& in) { return dropout(in["x"], p, 1, "drop"); });
  }
}

TEST(Dropout, MaskIsAFunctionOfStreamCallAndPosition) {
  constexpr double P = 0.25;
  constexpr std::uint64_t Call = 3;
  const Random stream(11, "block0.drop");
  const std::vector<double> y =
      numbers(dropout(Tensor::ones({50003}, Dtype::F64), P, 11, "block0.drop", Call));
  for (std::size_t i = 0; i < y.size(); ++i) {
    const bool dropped = stream.word((Call << 36) + i) < P * 0x1p32;
    ASSERT_EQ(y[i], dropped ? 0 : 1 / (1 - P)) << i;
  }
}

TEST(Dropout, GradientHasTheMaskOfTheForward) {
  const Tensor x = Tensor::ones({1000}, Dtype::F64).set_requires_grad();
  Tape tape;
  const Tensor y = dropout(x, 0.5, 1, "drop");
  const Gradients g = tape.backward(y, {.cotangent = Tensor::ones({1000}, Dtype::F64)});
  EXPECT_TRUE(same_bits(g[x], y));
}

TEST(Dropout, KeepsTheExpectedShare) {
  constexpr double P = 0.1;
  constexpr double N = 100000;
  double dropped = 0;
  for (const double v : numbers(dropout(Tensor::ones({100000}), P, 2, "drop"))) dropped += v == 0;
  EXPECT_NEAR(dropped / N, P, 5 * std::sqrt(P * (1 - P) / N));  // five standard deviations
}

TEST(Dropout, SeedStreamAndCallGiveIndependentMasks) {
  const Tensor x = Tensor::ones({1000});
  const std::vector<double> base = numbers(dropout(x, 0.5, 1, "a", 0));
  for (const Tensor& other :
       {dropout(x, 0.5, 2, "a", 0), dropout(x, 0.5, 1, "b", 0), dropout(x, 0.5, 1, "a", 1)}) {
    const std::vector<double> mask = numbers(other);
    double equal = 0;
    for (std::size_t i = 0; i < mask.size(); ++i) equal += mask[i] == base[i];
    EXPECT_NEAR(equal, 500, 5 * std::sqrt(250.0));
  }
  EXPECT_EQ(numbers(dropout(x, 0.5, 1, "a", 0)), base);
}

TEST(Dropout, DroppingEverythingHidesNaN) {
  const Tensor x = Tensor::full({9}, std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(numbers(dropout(x, 1, 1, "drop")), Each(0.0));
}

TEST(Dropout, RefusesWhatIsNoProbability) {
  const Tensor x = Tensor::ones({3});
  for (const double p : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(message_of([&] { (void)dropout(x, p, 1, "drop"); }),
                HasSubstr("dropout: p must be in [0, 1]"));
  }
  EXPECT_THROW((void)dropout(ids({2}, {1, 2}), 0.5, 1, "drop"), ShapeError);
  EXPECT_THROW((void)dropout(Tensor{}, 0.5, 1, "drop"), ShapeError);
  EXPECT_THROW((void)dropout(x, 0.5, 1, "drop", std::uint64_t{1} << 28), Error);
}

}  // namespace
}  // namespace steady
