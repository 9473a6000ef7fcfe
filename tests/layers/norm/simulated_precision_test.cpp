#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/simulated_norm.hpp>
#include <steadygrad/layers/norm/simulated_precision.hpp>

#include "tests/layers/norm/norm_testing.hpp"

namespace steady {
namespace {

using namespace norm_testing;
using testing::ElementsAre;
using testing::HasSubstr;

double bf16(double v) { return round_to(LowFormat::Bf16, v); }
double fp16(double v) { return round_to(LowFormat::Fp16, v); }

/// The number that 16 bits of fp16 stand for.
double half(int bits) {
  const int exponent = bits >> 10, fraction = bits & 1023;
  return exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
}

TEST(RoundTo, TakesTheNearestOfEveryPairOfHalvesAndTheEvenOneAtATie) {
  for (int bits = 0; bits < 0x7bff; ++bits) {
    const double low = half(bits), high = half(bits + 1), middle = (low + high) / 2;
    ASSERT_EQ(fp16(low), low);
    ASSERT_EQ(fp16(-high), -high);
    ASSERT_EQ(fp16(middle), bits % 2 == 0 ? low : high) << middle;
    ASSERT_EQ(fp16(std::nextafter(middle, 0)), low);
    ASSERT_EQ(fp16(std::nextafter(middle, 1e9)), high);
  }
}

TEST(RoundTo, IsTheUpperHalfOfAFloatForBf16) {
  Random random(1, "bits");
  for (int i = 0; i < 20000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random.uniform() * 4294967296.0);
    const auto value = std::bit_cast<float>(bits);
    if (!std::isfinite(value)) continue;
    const std::uint32_t upper = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    ASSERT_EQ(bf16(double(value)), double(std::bit_cast<float>(upper))) << value;
  }
}

TEST(RoundTo, OverflowsToInfinityAndUnderflowsThroughSubnormals) {
  EXPECT_EQ(fp16(65519.999), 65504);
  EXPECT_EQ(fp16(65520), INFINITY);
  EXPECT_EQ(fp16(-1e300), -INFINITY);
  EXPECT_EQ(fp16(0x1p-24), 0x1p-24);
  EXPECT_EQ(fp16(0x1p-25), 0);
  EXPECT_TRUE(std::signbit(fp16(-0x1p-30)));
  EXPECT_EQ(bf16(0x1p-133), 0x1p-133);
  EXPECT_EQ(bf16(0x1p-134), 0);
  EXPECT_EQ(bf16(3.4e38), INFINITY);
  EXPECT_TRUE(std::isnan(bf16(std::nan(""))));
}

/// By way of float these would be ties.
TEST(RoundTo, RoundsOnce) {
  EXPECT_EQ(bf16(1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-7);
  EXPECT_EQ(bf16(1 + 3 * 0x1p-8 - 0x1p-40), 1 + 0x1p-7);
}

/// A norm of the spec with these weights, of x in float64.
std::vector<double> run(const char* spec, const std::vector<double>& w,
                        const std::vector<double>& x) {
  const auto n = std::ssize(x);
  const auto norm = make_norm(NormSpec::parse(spec), n);
  norm->to(Dtype::F64);
  norm->parameters().at(0).value.copy_from(Tensor::from<double>({n}, std::span(w)));
  return values((*norm)(Tensor::from<double>({1, n}, std::span(x))));
}

TEST(SimulatedPrecision, ShowsWhatTheOrderOfCastAndWeightCosts) {  // CASES LN-09
  const std::vector<double> x{0.7, -1.3, 2.1, 0.4}, w{1.01, 0.37, 1.77, 0.93};
  EXPECT_THAT(run("rms(simulate=bf16, cast=before)", w, x),
              ElementsAre(0.54296875, -0.369140625, 2.875, 0.287109375));
  EXPECT_THAT(run("rms(simulate=bf16)", w, x),
              ElementsAre(0.54296875, -0.369140625, 2.859375, 0.287109375));
}

TEST(SimulatedPrecision, AddsTheUnitOffsetWhereTheGainIsApplied) {  // CASES LN-09
  const std::vector<double> x{1, 1}, w{15.8125, 15.8125};
  EXPECT_EQ(run("rms(eps=0, unit_offset=true, simulate=bf16, cast=before)", w, x)[0], 16.75);
  // 16.8125 rounds to a bf16 only at the very end.
  EXPECT_EQ(run("rms(eps=0, unit_offset=true, simulate=fp16)", w, x)[0], 16.8125);
}

/// 300^2 is beyond the largest fp16: the row vanishes, in silence.
TEST(SimulatedPrecision, LetsAnAccumulatorOverflow) {
  const std::vector<double> x{300, -300}, w{1, 1};
  EXPECT_THAT(run("rms(simulate=fp16)", w, x), ElementsAre(1, -1));
  EXPECT_THAT(run("rms(simulate=fp16, accumulate=same)", w, x), ElementsAre(0, 0));
}

/// A bf16 accumulator stops growing at 256 ones.
TEST(SimulatedPrecision, LetsAnAccumulatorStagnate) {
  const std::vector<double> ones(1024, 1.0);
  EXPECT_EQ(run("rms(eps=0, simulate=bf16)", ones, ones)[0], 1);
  EXPECT_EQ(run("rms(eps=0, simulate=bf16, accumulate=same)", ones, ones)[0], 2);
}

TEST(SimulatedPrecision, IsNearTheExactNormForEveryNormAndOrder) {
  const Tensor x = noise({6, 5, 33}, "x").detached_copy(Dtype::F32);
  for (const char* norm : {"layer", "layer(over=sample", "rms", "batch"}) {
    for (const char* format : {"bf16", "fp16"}) {
      for (const char* cast : {"after", "before"}) {
        const std::string name = norm;
        const std::string open = name.find('(') == name.npos ? name + "(" : name + ", ";
        const std::string exact = name.find('(') == name.npos ? name : name + ")";
        const std::string spec = fmt::format("{}simulate={}, cast={})", open, format, cast);
        const std::vector<double> want = values((*make_norm(NormSpec::parse(exact), 33))(x));
        const std::vector<double> got = values((*make_norm(NormSpec::parse(spec), 33))(x));
        const double unit = std::string(format) == "bf16" ? 0x1p-8 : 0x1p-11;
        double worst = 0;
        for (std::size_t i = 0; i < want.size(); ++i) {
          worst = std::max(worst, std::abs(got[i] - want[i]) / std::max(1.0, std::abs(want[i])));
          ASSERT_EQ(got[i], round_to(unit < 0.003 ? LowFormat::Fp16 : LowFormat::Bf16, got[i]));
        }
        EXPECT_LT(worst, 4 * unit) << spec;
        EXPECT_GT(worst, 0.1 * unit) << spec;
      }
    }
  }
}

TEST(SimulatedPrecision, DerivesTheExactNormAtTheRoundedInput) {
  SimulatedNorm<RmsNorm> norm({.norm = {.normalized_shape = {5}}, .precision = {}});
  const Tensor x = noise({3, 5}, "x").detached_copy(Dtype::F32).set_requires_grad();
  const Tensor dy = noise({3, 5}, "dy").detached_copy(Dtype::F32);
  Tensor rounded = x.detached_copy();
  for (float& v : rounded.mutable_data<float>()) v = float(bf16(double(v)));
  rounded.set_requires_grad();
  const Tensor w = norm.parameters().at(0).value;
  const Gradients got = gradients([&] { return norm(x); }, dy);
  const Gradients want = gradients([&] { return rms_norm(rounded, {5}, w); }, dy);
  EXPECT_TRUE(same_bits(got[x], want[rounded]));
  EXPECT_TRUE(same_bits(got[w], want[w]));
}

TEST(SimulatedPrecision, BatchNormKeepsExactStatisticsAndUsesThemInEval) {
  SimulatedNorm<BatchNorm> norm({.norm = {.features = 2}, .precision = {}});
  BatchNorm exact({.features = 2});
  Tensor x = noise({7, 2}, "x", 3).detached_copy(Dtype::F32);
  for (float& v : x.mutable_data<float>()) v = float(bf16(double(v)));
  (void)norm(x);
  (void)exact(x);
  const State got = norm.state(), want = exact.state();
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].name, want[i].name);
    EXPECT_TRUE(same_bits(got[i].value, want[i].value)) << got[i].name;
  }
  EXPECT_EQ(norm.statistics(), "updating");
  norm.eval();
  exact.eval();
  EXPECT_EQ(norm.statistics(), "frozen");
  expect_values(norm(x), values(exact(x)), 0x1p-7);
}

TEST(SimulatedPrecision, IsAskedForByTheSpec) {
  const auto norm =
      make_norm(NormSpec::parse("layer(simulate=fp16, accumulate=same, cast=before)"), 4);
  EXPECT_EQ(norm->describe(),
            "LayerNorm([4], eps=1e-05, simulate=fp16, accumulate=same, cast=before)");
  EXPECT_EQ(norm->parameters().at(0).name, "weight");
  EXPECT_EQ(norm->parameters().at(1).role, Role::NormShift);
  for (const char* spec : {"rms(cast=before)", "layer(accumulate=same)"}) {
    try {
      (void)make_norm(NormSpec::parse(spec), 4);
      ADD_FAILURE() << spec;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("need simulate=bf16"));
    }
  }
  EXPECT_NE(dynamic_cast<LayerNorm*>(make_norm(NormSpec::parse("layer"), 4).get()), nullptr);
}

}  // namespace
}  // namespace steady
