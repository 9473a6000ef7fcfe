#include <gtest/gtest.h>

#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/layers/norm/layer_norm.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <steadygrad/layers/norm/rms_norm.hpp>

#include "tests/layers/norm/norm_testing.hpp"

// Faults that were reported against norms of rows, over every such norm.

namespace steady {
namespace {

using namespace norm_testing;

/// Largest difference of a norm in float32 and in float64, of the same numbers of float32, relative
/// to max(1, |value|).
double float32_error(const std::string& spec, const Tensor& x) {
  const auto norm = make_norm(NormSpec::parse(spec), x.dim(-1));
  norm->initialize(1);
  const std::vector<double> got = values((*norm)(x.detached_copy(Dtype::F32)));
  norm->to(Dtype::F64);
  const std::vector<double> want = values((*norm)(x));
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, std::abs(got[i] - want[i]) / std::max(1.0, std::abs(want[i])));
  }
  return worst;
}

class RowNorm : public testing::TestWithParam<const char*> {};

/// Rows with mean 1e4 and spread 1: a variance in one pass of float has no digits left.
TEST_P(RowNorm, KeepsItsDigitsOnHostileRows) {  // CASES LN-01
  for (const std::int64_t width : {768, 7168}) {
    EXPECT_LE(float32_error(GetParam(), noise({16, width}, "hostile", 1e4, 1)), 2e-6) << width;
    EXPECT_LE(float32_error(GetParam(), noise({16, width}, "tiny", 0, 1e-6)), 2e-6) << width;
    Tensor spiky = noise({4, width}, "spiky", 0, 1e-2);
    for (std::int64_t i = 0; i < 4; ++i) {
      spiky.mutable_data<double>()[static_cast<std::size_t>(i * width + i)] = 4096;
    }
    EXPECT_LE(float32_error(GetParam(), spiky), 2e-6) << width;
  }
}

/// x + norm(x) reads x after the norm has run, also where no conversion was needed.
TEST_P(RowNorm, OfAResidualBranchLeavesTheResidualAlone) {  // CASES LN-10
  const auto norm = make_norm(NormSpec::parse(GetParam()), 5);
  const Tensor x = noise({3, 5}, "x").detached_copy(Dtype::F32);
  const Tensor before = x.detached_copy();
  const Tensor y = (*norm)(x);
  EXPECT_FALSE(y.shares_storage_with(x));
  const std::vector<double> sum = values(x + y), ys = values(y), xs = values(before);
  for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_FLOAT_EQ(float(sum[i]), float(xs[i] + ys[i]));
  EXPECT_TRUE(same_bits(x, before));
}

/// The weight's gradient needs the cotangent after dx has been made.
TEST_P(RowNorm, BackwardLeavesTheCotangentAlone) {  // CASES LN-20
  const auto norm = make_norm(NormSpec::parse(GetParam()), 7);
  const Tensor x = noise({5, 7}, "x").detached_copy(Dtype::F32).set_requires_grad();
  const Tensor dy = noise({5, 7}, "dy").detached_copy(Dtype::F32), before = dy.detached_copy();
  const Gradients both = gradients([&] { return (*norm)(x); }, dy);
  EXPECT_TRUE(same_bits(dy, before));
  for (const Parameter& p : norm->parameters()) {
    const Gradients alone = gradients([&] { return (*norm)(x.detach()); }, dy);
    EXPECT_TRUE(same_bits(both[p.value], alone[p.value])) << p.name;
  }
}

TEST_P(RowNorm, EveryWidthGivesEveryGradient) {  // CASES LN-21
  for (const std::int64_t width : {1, 7, 8, 16, 33}) {
    const auto norm = make_norm(NormSpec::parse(GetParam()), width);
    const Tensor x = noise({6, width}, "x").detached_copy(Dtype::F32).set_requires_grad();
    const Gradients g =
        gradients([&] { return (*norm)(x); }, noise({6, width}, "dy").detached_copy(Dtype::F32));
    EXPECT_TRUE(g.contains(x)) << width;
    for (const Parameter& p : norm->parameters()) {
      ASSERT_TRUE(g.contains(p.value)) << p.name << ", width " << width;
      EXPECT_EQ(g[p.value].shape(), p.value.shape());
    }
  }
}

/// Every rank has the rows of its last axis.
TEST_P(RowNorm, OfAnyRankIsThatOfItsRows) {  // CASES LN-11
  const auto norm = make_norm(NormSpec::parse(GetParam()), 4);
  const Tensor x = noise({2, 3, 4}, "x").detached_copy(Dtype::F32);
  const Tensor rows = Tensor::from<float>({6, 4}, x.data<float>());
  const std::vector<double> a = values((*norm)(x)), b = values((*norm)(rows));
  EXPECT_EQ(a, b);
}

std::string name_of(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::ranges::replace_if(
      name, [](char c) { return std::string_view("(=,. )").find(c) != std::string_view::npos; },
      '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Specs, RowNorm,
                         testing::Values("layer", "layer(bias=false)", "rms",
                                         "rms(unit_offset=true)", "prms", "srms", "scale", "l2",
                                         "dyt", "derf", "adanorm"),
                         name_of);

}  // namespace
}  // namespace steady
