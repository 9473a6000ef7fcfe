#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <clocale>
#include <locale>
#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/layers/norm/layer_norm.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <steadygrad/layers/norm/rms_norm.hpp>

#include "tests/layers/norm/norm_testing.hpp"

namespace steady {
namespace {

using namespace norm_testing;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string canonical(std::string_view text) { return to_string(NormSpec::parse(text)); }

std::string fault(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string fault(std::string_view text) {
  return fault([&] { (void)NormSpec::parse(text); });
}

TEST(NormSpec, PrintsBackTheSameText) {
  for (const std::string text :
       {"none", "batch", "layer", "rms", "batch(momentum=0.05)", "batch(momentum=cumulative)",
        "batch(eps=0.001, momentum=1, affine=false, track=false)", "layer(over=sample)",
        "layer(eps=1e-12, bias=false)", "rms(eps=1e-5, unit_offset=true)", "rms(affine=false)",
        "layer(eps=0.1234567890123457)", "rms(eps=1e20)", "rms(eps=0)"}) {
    EXPECT_EQ(canonical(text), text);
    EXPECT_EQ(NormSpec::parse(canonical(text)), NormSpec::parse(text));
  }
}

TEST(NormSpec, HasOneSpellingForOneMeaning) {
  EXPECT_EQ(canonical(" batch ( momentum = 0.050 ,eps=1e-05 ) "), "batch(momentum=0.05)");
  EXPECT_EQ(canonical("batch(momentum=0.1)"), "batch");
  EXPECT_EQ(canonical("batch()"), "batch");
  EXPECT_EQ(canonical("layer(over=position, affine=true)"), "layer");
  EXPECT_EQ(canonical("layer(over=sample, eps=1E-3)"), "layer(eps=0.001, over=sample)");
  EXPECT_EQ(to_string(NormSpec()), "none");
  EXPECT_EQ(NormSpec(), NormSpec::parse("none"));
  EXPECT_NE(NormSpec::parse("batch"), NormSpec::parse("batch(eps=1e-3)"));
}

TEST(NormSpec, AnUnknownNormListsTheKnownOnes) {
  EXPECT_THAT(fault("btch"),
              AllOf(HasSubstr("unknown norm 'btch'"), HasSubstr("none, batch, layer"),
                    HasSubstr(", rms, "), HasSubstr("group")));
}

TEST(NormSpec, AnErrorNamesTheTokenAndShowsTheGrammar) {
  const std::string grammar =
      "batch(eps=1e-5[0..], momentum=0.1[0..1]|cumulative, affine=true, bias=true, track=true, ";
  EXPECT_THAT(fault("batch(momntum=0.05)"),
              AllOf(HasSubstr("unknown option 'momntum'"), HasSubstr(grammar)));
  EXPECT_THAT(
      fault("batch(momentum=often)"),
      AllOf(HasSubstr("momentum cannot be 'often'; it is a number >= 0 and <= 1, or cumulative"),
            HasSubstr(grammar)));
  EXPECT_THAT(fault("batch(momentum=1.5)"), HasSubstr("momentum cannot be '1.5'"));
  EXPECT_THAT(fault("batch(momentum=0,05)"), HasSubstr("not option=value: '05'"));
  EXPECT_THAT(fault("batch(affine=yes)"), HasSubstr("affine cannot be 'yes'; it is true, false"));
  EXPECT_THAT(fault("layer(over=batch)"), HasSubstr("it is position, sample"));
  EXPECT_THAT(fault("none(eps=1)"), HasSubstr("unknown option 'eps'"));
  for (const char* eps : {"-1", "nan", "inf", "1e999", "0x1", "1e-5f", "+1"}) {
    EXPECT_THAT(fault("rms(eps=" + std::string(eps) + ")"), HasSubstr("eps cannot be")) << eps;
  }
}

TEST(NormSpec, BrokenSyntaxIsRefused) {
  for (const char* text : {"", "  ", "(", "batch(", "batch)", "batch(eps=1e-3", "batch(eps)",
                           "batch(eps=)", "batch(=1)", "batch(eps=1,)", "batch(,)", "batch()x",
                           "ba tch", "batch(eps=1e-3)(track=false)", "1batch"}) {
    EXPECT_THROW((void)NormSpec::parse(text), Error) << text;
  }
  EXPECT_THAT(fault("batch(eps=1e-3, eps=1e-4)"), HasSubstr("given twice: 'eps'"));
}

TEST(NormSpec, DoesNotDependOnTheLocale) {  // CASES RT-11
  struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
  };
  const std::locale before = std::locale::global(std::locale(std::locale(), new Comma));
  const std::string c_before = std::setlocale(LC_ALL, nullptr);
  (void)std::setlocale(LC_ALL, "de_DE.UTF-8");
  EXPECT_EQ(canonical("batch(momentum=0.05)"), "batch(momentum=0.05)");
  (void)std::setlocale(LC_ALL, c_before.c_str());
  std::locale::global(before);
}

TEST(NormSpec, MakesTheLayerItDescribes) {
  const auto batch = make_norm(
      NormSpec::parse("batch(eps=1e-3, momentum=cumulative, bias=false, track=false)"), 7);
  const auto& b = dynamic_cast<const BatchNorm&>(*batch);
  EXPECT_EQ(b.o.features, 7);
  EXPECT_EQ(b.o.eps, 1e-3);
  EXPECT_FALSE(b.o.momentum.has_value());
  EXPECT_TRUE(b.o.affine);
  EXPECT_FALSE(b.o.bias);
  EXPECT_FALSE(b.o.track_running_stats);
  const auto plain = make_norm(NormSpec::parse("batch"), 2);
  EXPECT_EQ(dynamic_cast<const BatchNorm&>(*plain).o.momentum, 0.1);

  const auto layer = make_norm(NormSpec::parse("layer(over=sample, affine=false)"), 7);
  const auto& l = dynamic_cast<const LayerNorm&>(*layer);
  EXPECT_EQ(l.o.normalized_shape, Shape{7});
  EXPECT_TRUE(l.o.over_sample);
  EXPECT_FALSE(l.o.affine);

  const auto rms = make_norm(NormSpec::parse("rms(eps=1e-5, unit_offset=true)"), 7);
  const auto& r = dynamic_cast<const RmsNorm&>(*rms);
  EXPECT_EQ(r.o.eps, 1e-5);
  EXPECT_TRUE(r.o.unit_offset);

  const auto none = make_norm(NormSpec(), 7);
  const Tensor x = noise({3, 7}, "x");
  EXPECT_TRUE((*none)(x).shares_storage_with(x));
  EXPECT_TRUE(none->parameters().empty());
  EXPECT_THROW((void)make_norm(NormSpec::parse("rms"), 0), Error);
}

struct Block : Layer {
  struct Options {
    NormSpec norm{};
  };
  explicit Block(Options options) : o(std::move(options)) {}
  Options o;
  Layer& norm = add_norm("norm", o.norm, 4);
  Tensor forward(const Tensor& x) override { return norm(x); }
};

TEST(NormSpec, AddsANormToAModule) {
  Block block({NormSpec::parse("layer(bias=false)")});
  EXPECT_EQ(block.parameters().at(0).name, "norm.weight");
  EXPECT_EQ(&block.norm, block.children().at(0));
  const auto copy = clone(block);
  EXPECT_EQ(copy->norm.describe(), block.norm.describe());
  EXPECT_NE(&copy->norm, &block.norm);
}

/// y = x, with a parameter that says what it was made from.
struct Custom : Layer {
  Custom(double p, bool learned_, std::int64_t n) : power(p), learned(learned_), features(n) {}
  double power;
  bool learned;
  std::int64_t features;
  Tensor forward(const Tensor& x) override { return x; }
};

TEST(NormSpec, TakesNormsOfTheUsersOwn) {
  register_norm("custom_norm(power=0.5[0..1]|learned, mode=soft|hard)",
                [](const NormOptions& options, std::int64_t features) -> std::unique_ptr<Layer> {
                  const bool learned = options.text("power") == "learned";
                  return std::make_unique<Custom>(learned ? 0.0 : options.number("power"), learned,
                                                  features);
                });
  EXPECT_THAT(norm_grammars(),
              testing::Contains("custom_norm(power=0.5[0..1]|learned, mode=soft|hard)"));
  EXPECT_EQ(canonical("custom_norm(mode=hard, power=0.250)"), "custom_norm(power=0.25, mode=hard)");
  const auto layer = make_norm(NormSpec::parse("custom_norm(power=0.25)"), 3);
  EXPECT_EQ(dynamic_cast<const Custom&>(*layer).power, 0.25);
  EXPECT_EQ(dynamic_cast<const Custom&>(*layer).features, 3);
  EXPECT_TRUE(
      dynamic_cast<const Custom&>(*make_norm(NormSpec::parse("custom_norm(power=learned)"), 3))
          .learned);
}

TEST(NormSpec, ReplacesNoNormAndTakesNoBrokenGrammar) {
  const auto nothing = [](const NormOptions&, std::int64_t) { return std::unique_ptr<Layer>(); };
  const std::size_t before = norm_grammars().size();
  EXPECT_THAT(fault([&] { register_norm("batch(eps=1)", nothing); }),
              HasSubstr("the name 'batch' is taken by batch(eps="));
  EXPECT_THROW(register_norm("my(eps=)", nothing), Error);
  EXPECT_THROW(register_norm("my(eps=only)", nothing), Error);
  EXPECT_THROW(register_norm("my(eps=2[0..1])", nothing), Error);
  EXPECT_THROW(register_norm("my(eps=1[0-1])", nothing), Error);
  EXPECT_THROW(register_norm("my(eps=1[a..b])", nothing), Error);
  EXPECT_THROW(register_norm("my", nullptr), Error);
  EXPECT_EQ(norm_grammars().size(), before);
}

TEST(NormSpec, OptionsAreReadByTheirNameAndKind) {
  const NormSpec spec = NormSpec::parse("batch(momentum=cumulative)");
  EXPECT_EQ(spec.options().number("eps"), 1e-5);
  EXPECT_TRUE(spec.options().flag("track"));
  EXPECT_THROW((void)spec.options().number("momentum"), Error);
  EXPECT_THROW((void)spec.options().flag("eps"), Error);
  EXPECT_THROW((void)spec.options().text("epsilon"), Error);
}

}  // namespace
}  // namespace steady
