#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <steadygrad/core/ops/pool.hpp>
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
using testing::ElementsAre;
using testing::HasSubstr;

TensorFunction max_pooling(const Pool2dOptions& options) {
  return [options](Inputs in) { return max_pool2d(in[0], options); };
}
TensorFunction avg_pooling(const Pool2dOptions& options) {
  return [options](Inputs in) { return avg_pool2d(in[0], options); };
}

const bool maxima = register_ops(
    "MaxPool2d",
    {
        {.name = "side_by_side",
         .f = [](Inputs in) { return max_pool2d(in[0], 2); },
         .inputs = {real({2, 4, 5, 3}).without_near_ties()},
         .large = {real({17, 12, 12, 9})}},
        {.name = "overlapping_padded",
         .f = max_pooling({.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}),
         .inputs = {real({1, 5, 6, 2}).without_near_ties()},
         .large = {real({17, 12, 12, 9})}},
        {.name = "asymmetric_dilated",
         .f = max_pooling(
             {.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}}),
         .inputs = {real({1, 6, 5, 2}).without_near_ties()}},
        {.name = "ceil_mode",
         .f = max_pooling({.kernel = {2, 2}, .ceil_mode = true}),
         .inputs = {real({1, 5, 3, 2}).without_near_ties()}},
    });

const bool means = register_ops(
    "AvgPool2d",
    {
        {.name = "side_by_side",
         .f = [](Inputs in) { return avg_pool2d(in[0], 2); },
         .inputs = {real({2, 4, 5, 3})},
         .large = {real({17, 12, 12, 9})}},
        {.name = "padding_counts",
         .f = avg_pooling({.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}),
         .inputs = {real({1, 5, 6, 2})},
         .large = {real({17, 12, 12, 9})}},
        {.name = "padding_does_not_count",
         .f = avg_pooling(
             {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .count_include_pad = false}),
         .inputs = {real({1, 5, 6, 2})}},
        {.name = "ceil_mode",
         .f = avg_pooling({.kernel = {2, 3}, .ceil_mode = true}),
         .inputs = {real({1, 5, 4, 2})}},
        {.name = "global",
         .f = [](Inputs in) { return global_avg_pool2d(in[0]); },
         .inputs = {real({2, 4, 3, 3})},
         .large = {real({17, 12, 12, 9})}},
    });

std::array<std::int64_t, 2> pair(const GoldenCase& golden, const std::string& name) {
  const std::vector<std::int64_t> both = golden.attribute_ints(name);
  return {both.at(0), both.at(1)};
}

Pool2dOptions options_of(const GoldenCase& golden) {
  return {.kernel = pair(golden, "kernel"),
          .stride = pair(golden, "stride"),
          .padding = pair(golden, "padding"),
          .dilation = golden.has_attribute("dilation") ? pair(golden, "dilation")
                                                       : std::array<std::int64_t, 2>{1, 1},
          .ceil_mode = golden.attribute_int("ceil_mode") != 0,
          .count_include_pad = golden.attribute_int("count_include_pad", 1) != 0};
}

/// f on NHWC tensors as a function of NCHW ones.
template <class F>
void expect_golden_images(const GoldenCase& golden, F&& f) {
  SCOPED_TRACE(golden.path());
  expect_golden(golden, [&](GoldenInputs& in) {
    return permute(f(permute(in["x"], {0, 2, 3, 1})), {0, 3, 1, 2});
  });
}

TEST(MaxPool2d, EqualsTheReference) {
  for (const GoldenCase& golden : Golden("ops.h5").cases("max_pool2d")) {
    expect_golden_images(golden,
                         [&](const Tensor& x) { return max_pool2d(x, options_of(golden)); });
  }
}

TEST(AvgPool2d, EqualsTheReference) {
  for (const GoldenCase& golden : Golden("ops.h5").cases("avg_pool2d")) {
    expect_golden_images(golden,
                         [&](const Tensor& x) { return avg_pool2d(x, options_of(golden)); });
  }
}

TEST(GlobalAvgPool2d, EqualsTheReference) {
  for (const GoldenCase& golden : Golden("ops.h5").cases("adaptive_avg_pool2d_1x1")) {
    expect_golden_images(golden, [](const Tensor& x) {
      return reshape(global_avg_pool2d(x), {x.dim(0), 1, 1, x.dim(3)});
    });
  }
}

/// max_pool2d of one 2x2 window and the gradient of its output.
std::pair<double, std::vector<double>> one_window(const std::vector<double>& window) {
  const Tensor x = Tensor::from({1, 2, 2, 1}, std::span<const double>(window)).set_requires_grad();
  Tape tape;
  const Tensor y = max_pool2d(x, 2);
  return {y.item(), numbers(tape.backward(y)[x])};
}

TEST(MaxPool2d, NaNWinsItsWindowAndTakesTheGradient) {  // CASES LS-10
  const auto [y, dx] = one_window({1, std::numeric_limits<double>::quiet_NaN(), 5, 6});
  EXPECT_TRUE(std::isnan(y));
  EXPECT_THAT(dx, ElementsAre(0, 1, 0, 0));
}

TEST(MaxPool2d, WindowOfNegativeInfinitiesHasAFirstElement) {  // CASES LS-10
  constexpr double Lowest = -std::numeric_limits<double>::infinity();
  const auto [y, dx] = one_window({Lowest, Lowest, Lowest, Lowest});
  EXPECT_EQ(y, Lowest);
  EXPECT_THAT(dx, ElementsAre(1, 0, 0, 0));
}

TEST(Pooling, RefusesAWindowThatLiesWhollyInThePadding) {  // CASES LS-16
  const Tensor x = Tensor::ones({1, 1, 1, 1});
  const Pool2dOptions options{.kernel = {3, 3}, .stride = {3, 3}, .padding = {3, 3}};
  EXPECT_THAT(message_of([&] { (void)max_pool2d(x, options); }),
              AllOf(HasSubstr("max_pool2d"), HasSubstr("kernel / 2"), HasSubstr("padding 3")));
  EXPECT_THAT(message_of([&] { (void)avg_pool2d(x, options); }),
              AllOf(HasSubstr("avg_pool2d"), HasSubstr("kernel / 2")));
}

TEST(Pooling, RefusesWhatDoesNotFit) {
  const Tensor x = Tensor::ones({1, 4, 4, 2});
  EXPECT_THAT(message_of([&] {
                (void)max_pool2d(Tensor::ones({4, 4, 2}), 2);
              }),
              AllOf(HasSubstr("max_pool2d"), HasSubstr("x f32 [4, 4, 2]")));
  EXPECT_THROW((void)max_pool2d(x, 5), ShapeError);
  EXPECT_THROW((void)max_pool2d(x, 0), ShapeError);
  EXPECT_THROW((void)avg_pool2d(x, {.dilation = {2, 1}}), ShapeError);
  EXPECT_THROW((void)avg_pool2d(x, {.stride = {0, 1}}), ShapeError);
  EXPECT_THROW((void)max_pool2d(ids({1, 1, 1, 1}, {1}), 1), ShapeError);
  EXPECT_THROW((void)global_avg_pool2d(Tensor::empty({1, 0, 4, 2})), ShapeError);
  EXPECT_THROW((void)global_avg_pool2d(Tensor{}), ShapeError);
}

}  // namespace
}  // namespace steady
