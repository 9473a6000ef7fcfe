#include <steadygrad/layers/weight_layout.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/layers/decoder.hpp>
#include <string>
#include <vector>

#include "tests/support/message_of.hpp"

namespace steady {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<float> values(const Tensor& t) {
  return {t.data<float>().begin(), t.data<float>().end()};
}

TEST(WeightLayout, StarsCarryOverInTheirOrder) {
  EXPECT_EQ(rewrite("a.*.b.*", "x.*.*", "a.0.b.w"), "x.0.w");
  EXPECT_EQ(rewrite("*", "model.*", "w"), "model.w");
  EXPECT_EQ(rewrite("*.w", "*.weight", "w"), std::nullopt);  // a star is at least one character
  EXPECT_EQ(rewrite("*.w", "*.weight", ".w"), std::nullopt);
  EXPECT_EQ(rewrite("*.b.*", "*|*", "a.b.b.b"), "a|b.b");  // the first one as short as will do
  EXPECT_EQ(rewrite("*.b", "*", "a.b.b"), "a.b");
  EXPECT_EQ(rewrite("**", "*-*", "xyz"), "x-yz");
  EXPECT_EQ(rewrite("plain", "other", "plain"), "other");
  EXPECT_EQ(rewrite("plain", "other", "plain2"), std::nullopt);
  EXPECT_THAT(testing_support::message_of([] { (void)rewrite("*", "x", "y"); }),
              HasSubstr("'*' and 'x' have other numbers of stars"));
}

TEST(WeightLayout, LongNamesCostLinearTime) {
  const std::string name(1'000'000, 'a');
  EXPECT_FALSE(fits_any({"*a*a*a*a*b"}, name));
  EXPECT_TRUE(fits_any({"*a*a*a*a"}, name));
}

TEST(WeightLayout, RulesWorkBothWays) {
  const WeightLayout layout{.rename = {{"old.*", "new.*"}, {"bare.*", "full.bare.*", true}}};
  EXPECT_EQ(our_name(layout, "old.w"), "new.w");
  EXPECT_EQ(their_name(layout, "new.w"), "old.w");
  EXPECT_EQ(our_name(layout, "bare.w"), "full.bare.w");
  EXPECT_EQ(their_name(layout, "full.bare.w"), "full.bare.w");
  EXPECT_EQ(our_name(layout, "else"), "else");
}

TEST(WeightLayout, MatricesTurnAndTurnBack) {
  const WeightLayout layout{.transposed = {"*.w"}};
  const Tensor x = Tensor::of({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor ours = to_ours(layout, "a.w", x);
  EXPECT_EQ(ours.shape(), (Shape{3, 2}));
  EXPECT_THAT(values(ours), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_EQ(values(to_theirs(layout, "a.w", ours)), values(x));
  EXPECT_TRUE(to_ours(layout, "a.b", x).shares_storage_with(x));
}

TEST(WeightLayout, ColumnsBehindAFlattenedImageReorder) {
  // One output, 2 channels of 3 positions: c0p0 c0p1 c0p2 c1p0 c1p1 c1p2.
  const WeightLayout layout{.flattened = {{"fc.weight", 2}}};
  const Tensor x = Tensor::of({1, 6}, {0, 1, 2, 10, 11, 12});
  const Tensor ours = to_ours(layout, "fc.weight", x);
  EXPECT_THAT(values(ours), ElementsAre(0, 10, 1, 11, 2, 12));
  EXPECT_EQ(values(to_theirs(layout, "fc.weight", ours)), values(x));
  // Columns that are no multiple: left for the loader to complain of.
  const Tensor odd = Tensor::of({1, 3}, {1, 2, 3});
  EXPECT_TRUE(to_ours(layout, "fc.weight", odd).shares_storage_with(odd));
}

TEST(WeightLayout, DecodersKnowTheirFamily) {
  const Decoder gpt(Decoder::gpt2({.vocab = 8, .context = 4, .dim = 4, .layers = 1, .heads = 1}));
  const WeightLayout layout = weight_layout(gpt);
  EXPECT_EQ(our_name(layout, "h.0.ln_1.weight"), "transformer.h.0.ln_1.weight");
  EXPECT_EQ(our_name(layout, "transformer.h.0.ln_1.weight"), "transformer.h.0.ln_1.weight");
  EXPECT_EQ(our_name(layout, "wte.weight"), "transformer.wte.weight");
  EXPECT_TRUE(fits_any(layout.transposed, "transformer.h.0.attn.c_attn.weight"));
  EXPECT_FALSE(fits_any(layout.transposed, "transformer.h.0.ln_1.weight"));
  EXPECT_TRUE(fits_any(layout.ignored, "h.0.attn.bias"));
  EXPECT_FALSE(fits_any(layout.ignored, "h.0.attn.c_attn.bias"));
  ASSERT_EQ(layout.tied.size(), 1U);
  EXPECT_EQ(layout.tied[0].absent, "lm_head.weight");
  const Decoder llama(
      Decoder::llama({.vocab = 8, .context = 4, .dim = 4, .layers = 1, .heads = 1}));
  EXPECT_TRUE(weight_layout(llama).tied.empty());
  EXPECT_TRUE(weight_layout(llama).transposed.empty());
}

}  // namespace
}  // namespace steady
