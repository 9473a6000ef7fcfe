// Decoder as a whole: options and names, causality, determinism, copies.
#include <steadygrad/layers/decoder.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/loss.hpp>
#include <steadygrad/core/ops/matmul.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/storage.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/optim/sgd.hpp>

#include "tests/core/ops/op_test.hpp"
#include "tests/layers/transformer_testing.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/sanitizer.hpp"

namespace steady {
namespace {

using namespace transformer_testing;
using testing::HasSubstr;
using testing_support::close;
using testing_support::message_of;
using testing_support::same_bits;
using testing_support::ThreadCount;

constexpr Decoder::Sizes Small{.vocab = 13, .context = 12, .dim = 8, .layers = 2, .heads = 2};

/// A decoder of every placement, with the other options mixed in.
std::vector<Decoder::Options> many_options() {
  std::vector<Decoder::Options> all;
  for (const std::string& line : placement_grammars()) {
    Decoder::Options o = all.size() % 2 == 0 ? Decoder::gpt2(Small) : Decoder::minimind(Small, 1);
    o.placement = Placement::parse(line.substr(0, line.find('(')));
    o.gate = Gate::parse(all.size() % 3 == 0 ? "layerscale(init=0.5)" : "none");
    o.normformer = all.size() % 4 == 1;
    o.embed_norm = all.size() % 4 == 2;
    all.push_back(o);
  }
  return all;
}

bool has(const Module& model, const std::string& name) {
  return find(model.state(), name).defined();
}

TEST(Decoder, OptionsThatDoNotFitAreRefusedAtConstruction) {
  const auto message = [](auto change) {
    return message_of([&] {
      Decoder::Options o = Decoder::gpt2(Small);
      change(o);
      Decoder model(o);
    });
  };
  EXPECT_THAT(message([](auto& o) { o.heads = 3; }), HasSubstr("heads must divide dim"));
  EXPECT_THAT(message([](auto& o) { o.kv_heads = 3; }), HasSubstr("kv_heads must divide heads"));
  EXPECT_THAT(message([](auto& o) { o.layers = 0; }), HasSubstr("Decoder: vocab, context, dim"));
  EXPECT_THAT(message([](auto& o) { o.norm = NormSpec::parse("nrom"); }),
              HasSubstr("unknown norm 'nrom'"));
  EXPECT_THAT(message([](auto& o) { o.init_std = -1; }), HasSubstr("init_std"));
  EXPECT_THAT(message([](auto& o) { o.dropout = 1; }), HasSubstr("dropout"));
  EXPECT_THAT(message([](auto& o) { o.rope_theta = std::numeric_limits<double>::infinity(); }),
              HasSubstr("rope_theta must be finite"));
}

TEST(Decoder, MoreTokensThanTheContextAreOneClearError) {
  Decoder model(Decoder::gpt2(Small));
  model.initialize(1);
  EXPECT_THAT(message_of([&] {
                (void)model(random_ids({2, 13}, 13));
              }),
              HasSubstr("Decoder: the context is 12 tokens; got ids [2, 13]"));
  KeyValueCache cache = model.make_cache();
  const NoRecord inference;
  (void)model(random_ids({1, 12}, 13), {.cache = &cache});
  EXPECT_THAT(message_of([&] {
                (void)model(random_ids({1, 1}, 13), {.cache = &cache});
              }),
              HasSubstr("got ids [1, 1] after 12 tokens"));
  EXPECT_THAT(message_of([&] {
                (void)model(Tensor::of({1, 2}, {0, 13}, Dtype::I64));
              }),
              HasSubstr("in 'transformer.wte': embedding"));
  EXPECT_THAT(message_of([&] {
                (void)model(Tensor::ones({1, 2}));
              }),
              HasSubstr("needs ids i64 [B, T]"));
}

TEST(Decoder, NamesFollowTheFamily) {
  Decoder gpt(Decoder::gpt2(Small));
  EXPECT_TRUE(has(gpt, "transformer.h.1.attn.c_attn.bias"));
  EXPECT_FALSE(has(gpt, "lm_head.weight"));
  Decoder::Options o = Decoder::llama(Small);
  o.placement = Placement::parse("sandwich");
  o.embed_norm = true;
  Decoder gemma(o);
  for (const char* name : {"input_layernorm", "post_attention_layernorm",
                           "pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
    EXPECT_TRUE(has(gemma, fmt::format("model.layers.0.{}.weight", name))) << name;
  }
  EXPECT_TRUE(has(gemma, "model.embed_norm.weight"));
  EXPECT_TRUE(has(gemma, "lm_head.weight"));
  o.placement = Placement::parse("output");
  Decoder olmo(o);
  EXPECT_TRUE(has(olmo, "model.layers.0.post_attention_layernorm.weight"));
  EXPECT_TRUE(has(olmo, "model.layers.0.post_feedforward_layernorm.weight"));
  EXPECT_FALSE(has(olmo, "model.layers.0.input_layernorm.weight"));
  o.family = Family::Plain;
  EXPECT_TRUE(has(Decoder(o), "decoder.layers.1.self_attn.q_proj.weight"));
}

TEST(Decoder, ChangingATokenLeavesEveryEarlierOutputBitwiseAlone) {  // CASES LS-08
  for (const Decoder::Options& o : many_options()) {
    SCOPED_TRACE(to_string(o.placement));
    Decoder model(o);
    model.initialize(4);
    const Tensor ids = random_ids({2, 12}, 13);
    const Tensor before = model(ids);
    for (const std::int64_t at : {1, 6, 11}) {
      Tensor changed = ids.detached_copy();
      std::int64_t& id = changed.mutable_data<std::int64_t>()[static_cast<std::size_t>(at)];
      id = (id + 5) % 13;
      const Tensor after = model(changed);
      const auto head = [&](const Tensor& t) { return slice(slice(t, 0, 0, 1), 1, 0, at); };
      EXPECT_TRUE(same_bits(head(before), head(after)));
      EXPECT_TRUE(same_bits(slice(before, 0, 1, 2), slice(after, 0, 1, 2)));
      EXPECT_FALSE(same_bits(slice(before, 1, at, at + 1), slice(after, 1, at, at + 1)));
    }
  }
}

/// The parameters after two training steps.
State trained(Decoder::Options o, int threads) {
  const ThreadCount count(threads);
  o.dropout = 0.1;
  Decoder model(o);
  model.initialize(4);
  Sgd sgd(model.parameters(), {.lr = 0.1, .momentum = 0.9});
  for (int step = 0; step < 2; ++step) {
    Tape tape;
    const Tensor ids = random_ids({4, 40}, o.vocab, step == 0 ? "first" : "second");
    sgd.step(tape.backward(model.loss(ids, next_token_targets(ids))));
  }
  State state;
  for (const NamedTensor& t : model.state()) state.push_back({t.name, t.value.detached_copy()});
  return state;
}

TEST(Decoder, TrainsToTheSameBitsForAnyNumberOfThreads) {
  const Decoder::Sizes sizes{.vocab = 300, .context = 40, .dim = 48, .layers = 2, .heads = 4};
  for (const Decoder::Options& o : {Decoder::gpt2(sizes), Decoder::minimind(sizes, 2)}) {
    const State one = trained(o, 1);
    for (const int threads : {2, 3, 8}) {
      const State many = trained(o, threads);
      for (std::size_t i = 0; i < one.size(); ++i) {
        EXPECT_TRUE(same_bits(one[i].value, many[i].value)) << one[i].name << ", " << threads;
      }
    }
  }
}

TEST(Decoder, GradientsAreThoseOfDifferences) {
  for (Decoder::Options o :
       {Decoder::gpt2({5, 3, 4, 1, 2}), Decoder::minimind({5, 3, 4, 1, 2}, 1)}) {
    o.hidden = 5;
    o.normformer = o.embed_norm = true;
    Decoder model(o);
    randomize(model);
    const Tensor ids = random_ids({2, 3}, 5);
    expect_gradients(
        model, {}, [&](std::span<const Tensor>) { return model.loss(ids, ids); },
        /*second=*/true);
  }
}

TEST(Decoder, DecayReachesMatricesAndTablesAlone) {  // CASES OP-04
  for (Decoder::Options o : many_options()) {
    o.gate = Gate::parse("layerscale");
    Decoder model(o);
    for (const Parameter& p : model.parameters()) {
      EXPECT_EQ(DecayRoles.contains(p.role), p.value.rank() == 2) << p.name;
    }
  }
}

TEST(Decoder, EmbedsTokensAndPositionsThenNormsThem) {
  Decoder::Options o = Decoder::gpt2(Small);
  o.embed_norm = true;
  Decoder model(o);
  randomize(model);
  const State s = model.state();
  const Tensor ids = random_ids({2, 5}, 13);
  State hidden;
  const Tensor logits = model(ids, {.hidden = &hidden});
  const Tensor sum = gather_rows(find(s, "transformer.wte.weight"), ids) +
                     slice(find(s, "transformer.wpe.weight"), 0, 0, 5);
  EXPECT_TRUE(close(
      find(hidden, "embed"),
      layer_norm(sum, {8}, find(s, "transformer.ln_e.weight"), find(s, "transformer.ln_e.bias")),
      1e-14));
  EXPECT_TRUE(close(
      logits,
      matmul(find(hidden, "final_norm"), find(s, "transformer.wte.weight"), {.transpose_b = true}),
      1e-13));
}

TEST(Decoder, DropoutActsInTrainModeOnly) {
  Decoder::Options o = Decoder::gpt2(Small);
  o.dropout = 0.5;
  Decoder model(o);
  model.initialize(4);
  const Tensor ids = random_ids({1, 12}, 13);
  State hidden;
  (void)model(ids, {.hidden = &hidden});
  const std::vector<double> embedded = testing_support::numbers(find(hidden, "embed"));
  EXPECT_NEAR(static_cast<double>(std::ranges::count(embedded, 0.0)), 48, 25);
  model.eval();
  EXPECT_TRUE(same_bits(model(ids), model(ids)));
}

TEST(Decoder, InitialWeightsFollowTheOptions) {
  const auto deviation = [](const Decoder& model, const std::string& name) {
    double sum = 0;
    const Tensor t = find(model.state(), name);
    for (const float v : t.data<float>()) sum += double{v} * double{v};
    return std::sqrt(sum / static_cast<double>(t.numel()));
  };
  const std::string block = "transformer.h.0.";
  Decoder::Options o =
      Decoder::gpt2({.vocab = 50, .context = 16, .dim = 64, .layers = 8, .heads = 4});
  Decoder gpt(o);
  gpt.initialize(3);
  EXPECT_NEAR(deviation(gpt, "transformer.wte.weight"), 0.02, 0.001);
  EXPECT_NEAR(deviation(gpt, block + "attn.c_attn.weight"), 0.02, 0.001);
  EXPECT_NEAR(deviation(gpt, block + "attn.c_proj.weight"), 0.005, 0.0003);  // / sqrt(2 * 8)
  EXPECT_NEAR(deviation(gpt, block + "mlp.c_proj.weight"), 0.005, 0.0003);
  EXPECT_EQ(deviation(gpt, block + "mlp.c_fc.bias"), 0.0);
  o.placement = Placement::parse("deepnorm");  // its gain, and no scale by depth besides
  Decoder deep(o);
  deep.initialize(3);
  const double gain = std::pow(64.0, -0.25);
  EXPECT_NEAR(deviation(deep, block + "mlp.c_fc.weight"), 0.02 * gain, 0.0005);
  EXPECT_NEAR(deviation(deep, block + "attn.c_proj.weight"), 0.02 * gain, 0.0005);
  EXPECT_NEAR(deviation(deep, block + "mlp.c_proj.weight"), 0.02 * gain, 0.0005);
  const Tensor qkv = find(deep.state(), block + "attn.c_attn.weight");
  double last = 0;  // the rows of v
  for (const float v : qkv.data<float>().last(64 * 64)) last += double{v} * double{v};
  EXPECT_NEAR(std::sqrt(last / (64 * 64)), 0.02 * gain, 0.0005);
}

TEST(Decoder, ExchangingNormOrPlacementLeavesOtherInitialWeightsBitIdentical) {
  Decoder::Options o = Decoder::gpt2(Small);
  Decoder pre(o);
  o.norm = NormSpec::parse("rms");
  o.placement = Placement::parse("sandwich");
  Decoder sandwich(o);
  pre.initialize(9);
  sandwich.initialize(9);
  for (const Parameter& p : sandwich.parameters()) {
    if (p.role == Role::NormScale) continue;
    EXPECT_TRUE(same_bits(p.value, find(pre.state(), p.name))) << p.name;
  }
}

TEST(Decoder, ClonesAreEqualAndIndependent) {
  for (const Decoder::Options& o : many_options()) {
    SCOPED_TRACE(to_string(o.placement));
    Decoder model(o);
    model.initialize(4);
    const auto copy = clone(model);
    const Tensor ids = random_ids({1, 5}, 13);
    const Tensor y = model(ids);
    EXPECT_TRUE(same_bits((*copy)(ids), y));
    for (const Parameter& p : copy->parameters()) {
      EXPECT_FALSE(p.value.shares_storage_with(find(model.state(), p.name)));
    }
  }
}

TEST(Decoder, SummaryShowsTheTree) {
  Decoder model(Decoder::minimind(Small, 1));
  const std::string text = model.summary();
  for (const char* part :
       {"model.layers.1.self_attn", "kv_heads=1", "qk_norm=rms", "TransformerBlock(8, pre, rms)",
        "Mlp(8, 24, swiglu, bias=false)", "model.norm", "rotary=half-split theta=1000000"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_EQ(model.describe(), "Decoder(vocab=13, context=12, dim=8, layers=2, heads=2, pre, rms)");
}

TEST(Decoder, NextTokenTargetsAreTheLabelsShifted) {
  const Tensor labels = Tensor::of({2, 3}, {1, 2, 3, 4, -100, 6}, Dtype::I64);
  EXPECT_THAT(testing_support::numbers(next_token_targets(labels)),
              testing::ElementsAre(2, 3, -100, -100, 6, -100));
  EXPECT_THROW((void)next_token_targets(Tensor::ones({2, 3})), ShapeError);
}

TEST(Decoder, TrainingMapsNoMemoryInSteadyState) {
  const Decoder::Sizes sizes{.vocab = 100, .context = 64, .dim = 64, .layers = 2, .heads = 4};
  Decoder model(Decoder::gpt2(sizes));
  model.initialize(4);
  Sgd sgd(model.parameters(), {.lr = 0.1});
  const Tensor ids = random_ids({4, 64}, 100);
  const Tensor targets = next_token_targets(ids);
  const auto steps = [&](int count) {
    for (int i = 0; i < count; ++i) {
      Tape tape;
      sgd.step(tape.backward(model.loss(ids, targets)));
    }
  };
  steps(3);
  const MemoryStats before = memory_stats();
  steps(3);
  const MemoryStats after = memory_stats();
  if (!test::under_address_sanitizer()) {
    EXPECT_EQ(after.mapped, before.mapped);
  }
  EXPECT_EQ(after.live_blocks, before.live_blocks);
}

}  // namespace
}  // namespace steady
