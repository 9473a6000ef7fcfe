#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <steadygrad/core/ops/rotary.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/random.hpp>

#include "tests/core/ops/op_test.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/op_table.hpp"

namespace steady {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::DoubleNear;
using testing::HasSubstr;
using testing::Pointwise;

TensorFunction turning(const RotaryOptions& options) {
  return [options](Inputs in) { return rotary(in[0], options); };
}

const bool rows = register_ops(
    "Rotary", {
                  {.name = "half_split",
                   .f = turning({}),
                   .inputs = {real({2, 3, 2, 4})},
                   .large = {real({3, 70, 4, 40})}},
                  {.name = "interleaved",
                   .f = turning({.style = RotaryStyle::Interleaved}),
                   .inputs = {real({2, 3, 2, 4})},
                   .large = {real({3, 70, 4, 40})}},
                  {.name = "part_of_the_width",
                   .f = turning({.theta = 500, .offset = 7, .dims = 4}),
                   .inputs = {real({1, 3, 2, 7})},
                   .large = {real({3, 70, 4, 41})}},
                  {.name = "interleaved_part",
                   .f = turning({.style = RotaryStyle::Interleaved, .offset = 3, .dims = 2}),
                   .inputs = {real({1, 3, 2, 5})}},
              });

TEST(Rotary, EqualsTheReference) {
  for (const GoldenCase& golden : Golden("ops.h5").cases("rope")) {
    SCOPED_TRACE(golden.path());
    const bool half = golden.attribute_string("convention") == "half_split";
    const RotaryOptions options{.theta = golden.attribute_double("theta"),
                                .style = half ? RotaryStyle::HalfSplit : RotaryStyle::Interleaved,
                                .offset = golden.attribute_int("start_pos")};
    // The file has [B, H, T, d].
    expect_golden(golden, [&](GoldenInputs& in) {
      return transpose(rotary(transpose(in["x"], 1, 2), options), 1, 2);
    });
  }
}

TEST(Rotary, HasMiniMindsTables) {
  const GoldenCase golden = Golden("models.h5").group("/minimind");
  const Tensor cosine = golden.tensor("rope/cos");  // [16, 8]
  // The pair (1, 0) turns into (cos, sin).
  Tensor x = Tensor::zeros({1, 16, 1, 16}, Dtype::F64);
  for (std::size_t t = 0; t < 16; ++t)
    for (std::size_t i = 0; i < 8; ++i) x.mutable_data<double>()[t * 16 + i] = 1;
  const Tensor y = reshape(rotary(x, {.theta = golden.attribute_double("rope_theta")}), {16, 16});
  EXPECT_TRUE(close(slice(y, 1, 0, 8), cosine, 1e-14));
  EXPECT_TRUE(close(slice(y, 1, 8, 16), golden.tensor("rope/sin"), 1e-14));
}

TEST(Rotary, LargePositionsAreExact) {
  constexpr std::int64_t Offset = (1 << 24) + 1;  // no float32
  const Tensor x = Tensor::of({1, 2, 1, 2}, {1, 0, 1, 0});
  const Tensor y = rotary(x, {.offset = Offset});
  const std::vector<double> want{std::cos(Offset), std::sin(Offset), std::cos(Offset + 1),
                                 std::sin(Offset + 1)};
  EXPECT_THAT(numbers(y), Pointwise(DoubleNear(6e-8), want));
}

TEST(Rotary, OffsetContinuesASequence) {
  const Tensor x = make_inputs({real({2, 9, 2, 6})}, Dtype::F32)[0].detach();
  const Tensor whole = rotary(x);
  for (std::int64_t t = 0; t < 9; ++t) {
    EXPECT_TRUE(same_bits(rotary(slice(x, 1, t, t + 1), {.offset = t}), slice(whole, 1, t, t + 1)));
  }
  // A shorter sequence after a longer one, and other options after these.
  EXPECT_TRUE(same_bits(rotary(slice(x, 1, 0, 4)), slice(whole, 1, 0, 4)));
  EXPECT_FALSE(same_bits(rotary(x, {.theta = 100}), whole));
  EXPECT_FALSE(same_bits(rotary(x, {.dims = 4}), whole));
  EXPECT_TRUE(same_bits(rotary(x), whole));
}

TEST(Rotary, ProductsDependOnTheDistanceAlone) {
  const Tensor q = make_inputs({real({1, 1, 1, 8})}, Dtype::F64)[0].detach();
  const Tensor k = Tensor::of({1, 1, 1, 8}, {1, -2, 0.5, 3, 1, 0, 2, -1}, Dtype::F64);
  const auto product = [&](std::int64_t i, std::int64_t j) {
    const std::vector<double> a = numbers(rotary(q, {.offset = i}));
    const std::vector<double> b = numbers(rotary(k, {.offset = j}));
    double sum = 0;
    for (std::size_t c = 0; c < 8; ++c) sum += a[c] * b[c];
    return sum;
  };
  EXPECT_NEAR(product(5, 2), product(1003, 1000), 1e-11);
  EXPECT_GT(std::abs(product(5, 2) - product(5, 3)), 1e-3);
}

TEST(Rotary, RefusesWhatDoesNotFit) {
  const Tensor x = Tensor::ones({1, 2, 3, 6});
  EXPECT_THAT(message_of([&] {
                (void)rotary(Tensor::ones({2, 3, 6}));
              }),
              AllOf(HasSubstr("rotary: needs x [B, T, H, d]"), HasSubstr("f32 [2, 3, 6]")));
  EXPECT_THAT(message_of([] {
                (void)rotary(Tensor::ones({1, 2, 3, 5}));
              }),
              HasSubstr("must be even and at most 5; got dims 5"));
  EXPECT_THROW((void)rotary(x, {.dims = 8}), ShapeError);
  EXPECT_THROW((void)rotary(x, {.dims = -2}), ShapeError);
  EXPECT_THROW((void)rotary(x, {.theta = 0}), Error);
  EXPECT_THROW((void)rotary(x, {.theta = std::nan("")}), Error);
  EXPECT_THROW((void)rotary(x, {.offset = -1}), Error);
  EXPECT_THROW((void)rotary(ids({1, 1, 1, 2}, {1, 2})), ShapeError);
  EXPECT_EQ(rotary(Tensor::empty({2, 0, 3, 4})).shape(), (Shape{2, 0, 3, 4}));
}

}  // namespace
}  // namespace steady
