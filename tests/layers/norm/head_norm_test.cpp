#include <gtest/gtest.h>

#include <steadygrad/core/gradcheck.hpp>
#include <steadygrad/core/ops/attention.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/layers/attention.hpp>
#include <steadygrad/layers/layer_function.hpp>

#include "tests/layers/norm/norm_testing.hpp"

// Any norm of rows may stand on the queries and keys of each head.

namespace steady {
namespace {

using namespace norm_testing;

constexpr std::int64_t Heads = 2, HeadDim = 4, Dim = Heads * HeadDim;

class HeadNorm : public testing::TestWithParam<const char*> {
 protected:
  HeadNorm() {
    layer.initialize(1);
    layer.to(Dtype::F64);
  }
  const NormSpec spec = NormSpec::parse(GetParam());
  Attention layer{{.dim = Dim, .heads = Heads, .causal = false, .qk_norm = spec}};
};

TEST_P(HeadNorm, IsTheNormOfTheFeaturesOfEachHead) {
  const Tensor x = noise({2, 3, Dim}, "x");
  const auto norm = make_norm(spec, HeadDim);
  norm->initialize(1);
  norm->to(Dtype::F64);
  const auto linear = [&](std::string_view name) {
    for (Module* child : layer.children()) {
      if (child->name() == name) return (*dynamic_cast<Linear*>(child))(x);
    }
    throw std::logic_error("no such map");
  };
  const auto heads = [&](const Tensor& t) { return reshape(t, {2, 3, Heads, HeadDim}); };
  const Tensor y = attention((*norm)(heads(linear("q_proj"))), (*norm)(heads(linear("k_proj"))),
                             heads(linear("v_proj")), {.causal = false});
  Linear& out = *dynamic_cast<Linear*>(layer.children().at(layer.children().size() - 1));
  ASSERT_EQ(out.name(), "o_proj");
  expect_values(layer(x), values(out(reshape(y, {2, 3, Dim}))), 1e-12);
}

TEST_P(HeadNorm, HasTheRightGradients) {
  const auto [f, inputs] = as_function(layer, noise({1, 3, Dim}, "x"));
  const GradcheckResult result = gradcheck(f, inputs, {.tolerance = 1e-8});
  EXPECT_TRUE(result.ok) << result.message;
}

std::string name_of(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::ranges::replace_if(
      name, [](char c) { return std::string_view("(=,. )").find(c) != std::string_view::npos; },
      '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Specs, HeadNorm,
                         testing::Values("layer", "layer(bias=false)", "layer(affine=false)", "rms",
                                         "rms(unit_offset=true)", "prms(p=0.5)", "srms", "scale",
                                         "l2", "dyt", "derf", "adanorm(detach=false)"),
                         name_of);

}  // namespace
}  // namespace steady
