#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <steadygrad/core/ops/conv.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/random.hpp>
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
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TensorFunction convolution(const Conv2dOptions& options) {
  return [options](Inputs in) {
    return conv2d(in[0], in[1], in.size() > 2 ? in[2] : Tensor{}, options);
  };
}

const bool rows =
    register_ops(
        "Conv2d",
        {
            {.name = "same_3x3",
             .f = convolution({.padding = {1, 1}}),
             .inputs = {real({2, 4, 3, 2}), real({3, 2, 3, 3}), real({3})},
             .large = {real({17, 8, 8, 16}), real({24, 16, 3, 3}), real({24})},
             .float32_tolerance = 2e-5},
            {.name = "valid_3x3_no_bias",
             .f = convolution({}),
             .inputs = {real({2, 4, 5, 2}), real({3, 2, 3, 3})}},
            {.name = "pointwise",
             .f = convolution({}),
             .inputs = {real({2, 3, 2, 4}), real({3, 4, 1, 1}), real({3})}},
            {.name = "stride_that_does_not_divide",
             .f = convolution({.stride = {3, 2}, .padding = {1, 0}}),
             .inputs = {real({1, 7, 6, 2}), real({2, 2, 3, 3}), real({2})}},
            {.name = "groups_stride_dilation",
             .f = convolution(
                 {.stride = {2, 2}, .padding = {1, 1}, .dilation = {2, 1}, .groups = 2}),
             .inputs = {real({1, 6, 5, 4}), real({4, 2, 3, 3}), real({4})},
             .large = {real({9, 9, 9, 8}), real({16, 4, 3, 3}), real({16})}},
            {.name = "depthwise",
             .f =
                 [](Inputs in) {
                   return conv2d(in[0], in[1], {}, {.padding = {1, 1}, .groups = in[0].dim(3)});
                 },
             .inputs = {real({2, 4, 3, 3}), real({3, 1, 3, 3})},
             .large = {real({9, 8, 8, 24}), real({24, 1, 3, 3})}},
            {.name = "asymmetric",
             .f = convolution({.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}}),
             .inputs = {real({1, 5, 6, 2}), real({2, 2, 3, 2}), real({2})}},
            {.name = "constant_input",
             .f = convolution({.padding = {1, 1}}),
             .inputs = {real({2, 4, 3, 2}).constant(), real({3, 2, 3, 3}), real({3})}},
            {.name = "frozen_weight",
             .f = convolution({.padding = {1, 1}}),
             .inputs = {real({2, 4, 3, 2}), real({3, 2, 3, 3}).constant(), real({3})}},
            {.name = "only_the_bias",
             .f = convolution({.padding = {1, 1}}),
             .inputs = {real({2, 4, 3, 2}).constant(), real({3, 2, 3, 3}).constant(), real({3})}},
        });

std::array<std::int64_t, 2> pair(const GoldenCase& golden, const std::string& name) {
  const std::vector<std::int64_t> both = golden.attribute_ints(name);
  return {both.at(0), both.at(1)};
}

TEST(Conv2d, EqualsTheReference) {
  for (const GoldenCase& golden : Golden("ops.h5").cases("conv2d")) {
    SCOPED_TRACE(golden.path());
    const Conv2dOptions options{.stride = pair(golden, "stride"),
                                .padding = pair(golden, "padding"),
                                .dilation = pair(golden, "dilation"),
                                .groups = golden.attribute_int("groups")};
    expect_golden(golden, [&](GoldenInputs& in) {
      const Tensor x = permute(in["x"], {0, 2, 3, 1});
      const Tensor bias = in.contains("bias") ? in["bias"] : Tensor{};
      return permute(conv2d(x, in["weight"], bias, options), {0, 3, 1, 2});
    });
  }
}

struct Derivatives {
  Tensor y, dx, dw;
};

/// With a cotangent of ones.
Derivatives differentiate(const Tensor& x, const Tensor& w, const Conv2dOptions& options) {
  const Tensor x_leaf = x.detached_copy().set_requires_grad();
  const Tensor w_leaf = w.detached_copy().set_requires_grad();
  Tape tape;
  const Tensor y = conv2d(x_leaf, w_leaf, {}, options);
  const Gradients g = tape.backward(y, {.cotangent = Tensor::ones(y.shape(), y.dtype())});
  return {y.detach(), g[x_leaf], g[w_leaf]};
}

TEST(Conv2d, InputGradientIsZeroWhereTheStrideReadsNothing) {  // CASES LS-12
  for (const Dtype dtype : {Dtype::F32, Dtype::F64}) {
    const Derivatives d =
        differentiate(Tensor::ones({1, 8, 8, 1}, dtype), Tensor::ones({1, 1, 5, 5}, dtype),
                      {.stride = {3, 3}, .padding = {1, 1}});
    EXPECT_EQ(d.y.shape(), (Shape{1, 2, 2, 1}));
    EXPECT_THAT(numbers(d.dx), ElementsAre(1, 1, 2, 2, 1, 1, 1, 0,  //
                                           1, 1, 2, 2, 1, 1, 1, 0,  //
                                           2, 2, 4, 4, 2, 2, 2, 0,  //
                                           2, 2, 4, 4, 2, 2, 2, 0,  //
                                           1, 1, 2, 2, 1, 1, 1, 0,  //
                                           1, 1, 2, 2, 1, 1, 1, 0,  //
                                           1, 1, 2, 2, 1, 1, 1, 0,  //
                                           0, 0, 0, 0, 0, 0, 0, 0));
    EXPECT_THAT(numbers(d.dw), ElementsAre(1, 2, 2, 2, 2,  //
                                           2, 4, 4, 4, 4,  //
                                           2, 4, 4, 4, 4,  //
                                           2, 4, 4, 4, 4,  //
                                           2, 4, 4, 4, 4));
  }
}

TEST(Conv2d, DepthwiseWeightGradientForEveryChannelCount) {  // CASES LS-13
  for (const std::int64_t channels : {8, 16, 23, 24, 25, 32}) {
    SCOPED_TRACE(channels);
    const Derivatives d =
        differentiate(Tensor::ones({1, 6, 6, channels}), Tensor::ones({channels, 1, 3, 3}),
                      {.stride = {2, 2}, .padding = {1, 1}, .groups = channels});
    const std::vector<double> dw = numbers(d.dw);
    const std::vector<double> expected{4, 6, 6, 6, 9, 9, 6, 9, 9};
    for (std::size_t i = 0; i < dw.size(); ++i) ASSERT_EQ(dw[i], expected[i % 9]) << i;
  }
}

Tensor random_tensor(const Shape& shape, const char* name, Dtype dtype) {
  Random random(7, name);
  Tensor x = Tensor::empty(shape, Dtype::F32);
  for (float& v : x.mutable_data<float>()) v = static_cast<float>(random.uniform(-1, 1));
  return x.detached_copy(dtype);
}

Derivatives random_problem(const Shape& x, const Shape& w, const Conv2dOptions& options,
                           Dtype dtype) {
  return differentiate(random_tensor(x, "x", dtype), random_tensor(w, "w", dtype), options);
}

void expect_close_derivatives(const Derivatives& got, const Derivatives& want) {
  expect_close(got.y.detached_copy(Dtype::F64), want.y, 1e-4);
  expect_close(got.dx.detached_copy(Dtype::F64), want.dx, 1e-4);
  expect_close(got.dw.detached_copy(Dtype::F64), want.dw, 1e-4);
}

TEST(Conv2d, GroupsAgreeInBothPrecisions) {  // CASES LS-17
  const auto run = [](Dtype dtype) {
    return random_problem({3, 6, 6, 4}, {6, 2, 3, 3}, {.padding = {1, 1}, .groups = 2}, dtype);
  };
  const Derivatives single = run(Dtype::F32);
  const Derivatives precise = run(Dtype::F64);
  expect_close(single.y.detached_copy(Dtype::F64), precise.y, 1e-5);
  expect_close(single.dx.detached_copy(Dtype::F64), precise.dx, 1e-5);
  expect_close(single.dw.detached_copy(Dtype::F64), precise.dw, 1e-5);
}

// A library primitive made for several threads but run by one returns part of the weight gradient
// and reports success. Each thread count gets a shape of its own, so that its primitives are new.
TEST(Conv2d, FloatGradientsAreCompleteForAnyThreadsAndInsideParallelLoops) {  // CASES RT-03
  const Conv2dOptions options{.padding = {1, 1}};
  for (const int threads : {1, 2, 3, 8}) {
    SCOPED_TRACE(threads);
    const ThreadCount guard(threads);
    const Shape x{17, 7, 7, 16};
    const Shape inside_first{12 + threads, 16, 3, 3};
    const Shape outside_first{32 + threads, 16, 3, 3};
    std::vector<Derivatives> inside(6);
    const Derivatives outside = random_problem(x, outside_first, options, Dtype::F32);
    parallel_for(6, 1, [&](std::int64_t i, std::int64_t) {
      inside[static_cast<std::size_t>(i)] =
          random_problem(x, i < 3 ? inside_first : outside_first, options, Dtype::F32);
    });
    const Derivatives afterwards = random_problem(x, inside_first, options, Dtype::F32);
    expect_close_derivatives(outside, random_problem(x, outside_first, options, Dtype::F64));
    expect_close_derivatives(afterwards, random_problem(x, inside_first, options, Dtype::F64));
    for (std::size_t i = 0; i < inside.size(); ++i) {
      const Derivatives& other = i < 3 ? afterwards : outside;
      EXPECT_TRUE(same_bits(inside[i].y, other.y)) << i;
      EXPECT_TRUE(same_bits(inside[i].dx, other.dx)) << i;
      EXPECT_TRUE(same_bits(inside[i].dw, other.dw)) << i;
    }
  }
}

TEST(Conv2d, InputGradientIsNotComputedForAConstantInput) {
  const Tensor w = Tensor::ones({2, 1, 3, 3}, Dtype::F64).set_requires_grad();
  const auto backward_entries = [&](const Tensor& x) {
    Tape tape;
    const Tensor y = conv2d(x, w);
    const std::int64_t forward = tape.size();
    (void)tape.backward(y, {.record = true, .cotangent = Tensor::ones(y.shape(), Dtype::F64)});
    return tape.size() - forward;
  };
  // The input gradient depends on w, so a recorded backward would show it; the weight gradient
  // depends on x alone.
  EXPECT_EQ(backward_entries(Tensor::ones({1, 4, 4, 1}, Dtype::F64)), 0);
  EXPECT_EQ(backward_entries(Tensor::ones({1, 4, 4, 1}, Dtype::F64).set_requires_grad()), 2);
}

TEST(Conv2d, EmptyBatchGivesZeroWeightGradients) {
  const Derivatives d = differentiate(Tensor::empty({0, 4, 4, 2}), Tensor::ones({3, 2, 3, 3}), {});
  EXPECT_EQ(d.y.shape(), (Shape{0, 2, 2, 3}));
  EXPECT_THAT(numbers(d.dw), Each(0.0));
}

TEST(Conv2d, RefusesWhatDoesNotFit) {
  const Tensor x = Tensor::ones({1, 5, 5, 4});
  const Tensor w = Tensor::ones({6, 4, 3, 3});
  EXPECT_THAT(message_of([&] {
                (void)conv2d(Tensor::ones({1, 4, 5, 5}), w);
              }),
              AllOf(HasSubstr("features last"), HasSubstr("x f32 [1, 4, 5, 5]"),
                    HasSubstr("weight f32 [6, 4, 3, 3]")));
  EXPECT_THROW((void)conv2d(x, w, {}, {.groups = 2}), ShapeError);
  EXPECT_THROW((void)conv2d(x, w, {}, {.groups = 0}), ShapeError);
  EXPECT_THROW((void)conv2d(x, w, {}, {.stride = {0, 1}}), ShapeError);
  EXPECT_THROW((void)conv2d(x, Tensor::ones({6, 4, 7, 3})), ShapeError);
  EXPECT_THROW((void)conv2d(x, w, Tensor::ones({4})), ShapeError);
  EXPECT_THROW((void)conv2d(x, w, Tensor::ones({6}, Dtype::F64)), ShapeError);
  EXPECT_THROW((void)conv2d(Tensor::ones({5, 5, 4}), w), ShapeError);
  EXPECT_THROW((void)conv2d(x, Tensor{}), ShapeError);
}

}  // namespace
}  // namespace steady
