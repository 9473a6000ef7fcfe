// Placements and gates: each against its formula written out, and as a whole block against
// differences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/layers/residual.hpp>
#include <steadygrad/layers/transformer_block.hpp>

#include "tests/layers/transformer_testing.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/message_of.hpp"

namespace steady {
namespace {

using namespace transformer_testing;
using testing::HasSubstr;
using testing_support::close;
using testing_support::message_of;

constexpr std::int64_t Features = 6;

/// Two branches, f as attention and g as feed-forward, in layer 2 of 4; norms are children n1, m1
/// (before, after) and n2, m2.
struct TwoBranches : Module {
  explicit TwoBranches(const std::string& placement, const std::string& gate = "none",
                       std::int64_t layer = 2)
      : place(Placement::parse(placement)),
        first(*this, options(gate, {.layer = layer, .layers = 4, .branch = 0}, "1")),
        second(
            *this,
            options(gate, {.layer = layer, .layers = 4, .branch = 1, .feed_forward = true}, "2")) {
    initialize(1);
    randomize(*this);
  }
  Residual::Options options(const std::string& gate, const ResidualSite& site,
                            const std::string& number) const {
    return {.placement = place,
            .norm = NormSpec::parse("layer"),
            .gate = Gate::parse(gate),
            .features = Features,
            .site = site,
            .before_name = "n" + number,
            .after_name = "m" + number,
            .gate_name = "g" + number};
  }
  Tensor child(const std::string& name, const Tensor& x) {
    for (Module* module : children()) {
      if (module->name() == name) return (*dynamic_cast<Layer*>(module))(x);
    }
    throw Error("no child " + name);
  }

  Placement place;
  Residual first;
  Residual second;
};

Tensor f(const Tensor& x) { return tanh(x * 1.3 + 0.2); }
Tensor g(const Tensor& x) { return sigmoid(x * 2.1 - 0.4) * x; }

/// A placement's formula for both branches, written out.
struct Formula {
  const char* name;
  const char* placement;
  Tensor (*expected)(TwoBranches& b, const Tensor& x);
  std::int64_t layer = 2;
};

const Formula Formulas[] = {
    {"pre", "pre",
     [](TwoBranches& b, const Tensor& x) {
       const Tensor h = x + f(b.child("n1", x));
       return h + g(b.child("n2", h));
     }},
    {"post", "post",
     [](TwoBranches& b, const Tensor& x) {
       const Tensor h = b.child("m1", x + f(x));
       return b.child("m2", h + g(h));
     }},
    {"sandwich", "sandwich",
     [](TwoBranches& b, const Tensor& x) {
       const Tensor h = x + b.child("m1", f(b.child("n1", x)));
       return h + b.child("m2", g(b.child("n2", h)));
     }},
    {"none", "none",
     [](TwoBranches&, const Tensor& x) {
       const Tensor h = x + f(x);
       return h + g(h);
     }},
    {"deepnorm", "deepnorm",
     [](TwoBranches& b, const Tensor& x) {
       const double alpha = std::sqrt(std::sqrt(8.0));  // 2 * 4 layers
       const Tensor h = b.child("m1", x * alpha + f(x));
       return b.child("m2", h * alpha + g(h));
     }},
    {"scaled_pre", "scaled_pre",
     [](TwoBranches& b, const Tensor& x) {
       const Tensor h = x + f(b.child("n1", x) / std::sqrt(2.0));
       return h + g(b.child("n2", h) / std::sqrt(2.0));
     }},
    {"b2t", "b2t",
     [](TwoBranches& b, const Tensor& x) {
       const Tensor h = b.child("m1", x + f(x));
       return b.child("m2", h + g(h) + x);
     }},
    {"resi_dual", "resi-dual",
     [](TwoBranches& b, const Tensor& x) {
       const Tensor h = b.child("m1", x + f(x));
       return b.child("m2", h + g(h));
     }},
    {"output", "output",
     [](TwoBranches& b, const Tensor& x) {
       const Tensor h = x + b.child("m1", f(x));
       return h + b.child("m2", g(h));
     }},
    {"hybrid", "hybrid",
     [](TwoBranches& b, const Tensor& x) {
       const Tensor h = b.child("n2", x + f(x));
       return h + g(h);
     }},
    {"mix_in_a_later_layer", "mix",
     [](TwoBranches& b, const Tensor& x) {
       const Tensor h = x + f(b.child("n1", x));
       return h + g(b.child("n2", h));
     }},
    {"mix_in_an_early_layer", "mix",
     [](TwoBranches& b, const Tensor& x) {
       const Tensor h = b.child("m1", x + f(x));
       return b.child("m2", h + g(h));
     },
     1},
    {"mix_with_a_larger_part", "mix(post=0.5)",
     [](TwoBranches& b, const Tensor& x) {
       const Tensor h = b.child("m1", x + f(x));
       return b.child("m2", h + g(h));
     }},
};

class PlacementFormula : public testing::TestWithParam<Formula> {};

TEST_P(PlacementFormula, IsTheOneWrittenOut) {
  const Formula& formula = GetParam();
  TwoBranches b(formula.placement, "none", formula.layer);
  const Tensor x = noise({3, Features}, "x");
  const ResidualStream y = b.second(b.first({x}, f), g);
  EXPECT_TRUE(close(y.x, formula.expected(b, x), 1e-14));
}

INSTANTIATE_TEST_SUITE_P(All, PlacementFormula, testing::ValuesIn(Formulas),
                         [](const auto& test) { return test.param.name; });

TEST(Placement, EveryOneHasAFormulaTest) {
  for (const std::string& line : placement_grammars()) {
    const std::string name = line.substr(0, line.find('('));
    EXPECT_TRUE(std::ranges::any_of(Formulas, [&](const Formula& f) {
      return Placement::parse(f.placement).name() == name;
    })) << name;
  }
}

TEST(Placement, ResiDualAddsUpItsSecondStreamAndEndsWithItsNorm) {
  TwoBranches b("resi_dual");
  LayerNorm norm({.normalized_shape = {Features}});
  randomize(norm);
  const Tensor x = noise({3, Features}, "x");
  const ResidualStream s = b.second(b.first({x}, f), g);
  const Tensor h = b.child("m1", x + f(x));
  EXPECT_TRUE(close(s.side, x + f(x) + g(h), 1e-14));
  EXPECT_TRUE(close(finish(b.place, s, &norm), s.x + norm(s.side), 1e-14));
}

TEST(Placement, TheStackEndsWithANormWhereTheResidualStreamHasNone) {
  std::string with;
  for (const std::string& line : placement_grammars()) {
    const Placement p = Placement::parse(line.substr(0, line.find('(')));
    if (p.final_norm()) with += p.name() + " ";
  }
  EXPECT_EQ(with, "pre sandwich scaled_pre resi_dual output hybrid mix ");
  LayerNorm norm({.normalized_shape = {Features}});
  randomize(norm);
  const Tensor x = noise({3, Features}, "x");
  EXPECT_TRUE(close(finish(Placement::parse("pre"), {x}, &norm), norm(x), 0.0));
  EXPECT_TRUE(close(finish(Placement::parse("post"), {x}, nullptr), x, 0.0));
}

TEST(Placement, DeepNormScalesInitialWeightsByDepth) {
  EXPECT_DOUBLE_EQ(Placement::parse("deepnorm").initial_gain(2), 0.5);  // 16^(-1/4)
  EXPECT_EQ(Placement::parse("pre").initial_gain(2), 1.0);
}

TEST(Placement, PrintsWhatItParses) {
  for (const char* text : {"pre", "post", "resi_dual", "mix", "mix(post=0.5)"}) {
    EXPECT_EQ(to_string(Placement::parse(text)), text);
  }
  EXPECT_EQ(to_string(Placement::parse(" resi-dual ")), "resi_dual");
  EXPECT_EQ(to_string(Placement::parse("mix( post = 0.25 )")), "mix");
  EXPECT_EQ(Placement(), Placement::parse("pre"));
  EXPECT_FALSE(Placement::parse("mix") == Placement::parse("mix(post=0.5)"));
}

TEST(Placement, ErrorsNameTheTokenAndTheChoices) {
  EXPECT_THAT(message_of([] { (void)Placement::parse("prae"); }),
              testing::AllOf(HasSubstr("placement 'prae': unknown; known: pre, post, sandwich"),
                             HasSubstr("mix(post=0.25[0..1])")));
  EXPECT_THAT(message_of([] { (void)Placement::parse("mix(first=1)"); }),
              HasSubstr("unknown option 'first'"));
  EXPECT_THAT(message_of([] { (void)Placement::parse("mix(post=2)"); }),
              HasSubstr("post cannot be '2'"));
  EXPECT_THROW((void)Placement::parse("pre").number("post"), Error);
}

TEST(Gate, MultipliesWhatABranchAdds) {
  const Tensor x = noise({3, Features}, "x");
  for (const char* text : {"rezero", "layerscale"}) {
    TwoBranches b("sandwich", text);
    const Tensor h = x + b.child("g1", b.child("m1", f(b.child("n1", x))));
    EXPECT_TRUE(close(b.first({x}, f).x, h, 1e-14)) << text;
  }
  TwoBranches post("post", "rezero");
  const Tensor gamma = find(post.state(), "g1.gamma");
  EXPECT_EQ(gamma.shape(), Shape({1}));
  EXPECT_TRUE(close(post.first({x}, f).x, post.child("m1", x + f(x) * gamma), 1e-14));
}

TEST(Gate, StartsAtItsInitialValue) {
  const auto start = [](const char* text) {
    TwoBranches b("pre", text);
    b.initialize(3);
    return find(b.state(), "g2.gamma").data<double>()[0];
  };
  EXPECT_EQ(start("rezero"), 0.0);
  EXPECT_EQ(start("rezero(init=0.5)"), 0.5);
  EXPECT_NEAR(start("layerscale"), 1e-4, 1e-11);
  EXPECT_EQ(to_string(Gate::parse("layerscale(init=0.1)")), "layerscale(init=0.1)");
  EXPECT_THAT(message_of([] { (void)Gate::parse("highway"); }),
              HasSubstr("gate 'highway': unknown; known: none, rezero(init=0"));
  EXPECT_THROW(Scale({.features = 0}), Error);
}

TEST(Gate, IsNotDecayed) {
  TwoBranches b("none", "layerscale");
  for (const Parameter& p : b.parameters()) EXPECT_EQ(p.role, Role::NormScale) << p.name;
}

TEST(Residual, LeavesItsInputAlone) {  // CASES LN-10
  struct Host : Module {};
  Host host;
  const Residual residual(host, {.placement = Placement::parse("output"),
                                 .norm = NormSpec::parse("rms(eps=0)"),
                                 .features = 2});
  const Tensor x = Tensor::of({1, 2}, {3, 4});
  const Tensor y = residual({x}, [](const Tensor& t) { return t; }).x;
  EXPECT_THAT(y.data<float>(),
              testing::ElementsAre(testing::FloatEq(3.84852814F), testing::FloatEq(5.13137085F)));
  EXPECT_THAT(x.data<float>(), testing::ElementsAre(3.0F, 4.0F));
}

TEST(Residual, SitesOutsideTheStackAreRefused) {
  struct Host : Module {};
  Host host;
  EXPECT_THROW(Residual(host, {.features = 2, .site = {.layer = 2, .layers = 1}}), Error);
  EXPECT_THROW(Residual(host, {.features = 2, .site = {.branch = 2}}), Error);
}

// --- whole blocks against differences ----------------------------------------------------------

struct BlockCase {
  const char* name;
  const char* placement;
  const char* norm = "layer";
  bool normformer = false;
};

class BlockGradients : public testing::TestWithParam<BlockCase> {
 protected:
  struct Net : Module {
    explicit Net(const TransformerBlock::Options& o)
        : block(add<TransformerBlock>("block", o)),
          norm(o.placement.final_norm() ? &add_norm("norm", o.norm, o.mlp.dim) : nullptr) {}
    TransformerBlock& block;
    Layer* norm;
  };

  static TransformerBlock::Options options(const BlockCase& c, const char* gate) {
    const NormSpec norm = NormSpec::parse(c.norm);
    const NormSpec extra = c.normformer ? norm : NormSpec();
    return {.attention = {.dim = 4,
                          .heads = 2,
                          .kv_heads = 1,
                          .qkv_bias = false,
                          .out_norm = extra,
                          .head_scale = c.normformer},
            .mlp = {.dim = 4, .hidden = 5, .kind = MlpKind::GeluTanh, .norm = extra},
            .norm = norm,
            .placement = Placement::parse(c.placement),
            .gate = Gate::parse(gate),
            .layer = 2,
            .layers = 4};
  }
};

TEST_P(BlockGradients, AreThoseOfDifferencesToSecondOrder) {
  for (const char* gate : {"none", "rezero", "layerscale"}) {
    SCOPED_TRACE(gate);
    Net net(options(GetParam(), gate));
    randomize(net);
    expect_gradients(
        net, {noise({1, 3, 4}, "x").set_requires_grad()},
        [&](std::span<const Tensor> in) {
          return finish(net.block.o.placement, net.block(ResidualStream{in[0]}, {}), net.norm);
        },
        /*second=*/true);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BlockGradients,
    testing::Values(BlockCase{"pre", "pre"}, BlockCase{"post", "post"},
                    BlockCase{"sandwich", "sandwich"}, BlockCase{"none", "none"},
                    BlockCase{"deepnorm", "deepnorm"}, BlockCase{"scaled_pre", "scaled_pre"},
                    BlockCase{"b2t", "b2t"}, BlockCase{"resi_dual", "resi_dual"},
                    BlockCase{"output", "output"}, BlockCase{"hybrid", "hybrid", "rms"},
                    BlockCase{"mix", "mix"}, BlockCase{"mix_post", "mix(post=0.5)"},
                    BlockCase{"pre_rms", "pre", "rms"}, BlockCase{"post_rms", "post", "rms"},
                    BlockCase{"normformer", "pre", "layer", true}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace steady
