// Embedding, Attention with its cache, and Mlp: options, names, what they compute.
#include <steadygrad/layers/attention.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/matmul.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/embedding.hpp>
#include <steadygrad/layers/mlp.hpp>

#include "tests/core/ops/op_test.hpp"
#include "tests/layers/transformer_testing.hpp"
#include "tests/support/golden.hpp"

namespace steady {
namespace {

using namespace transformer_testing;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::close;
using testing_support::message_of;
using testing_support::numbers;
using testing_support::same_bits;

std::vector<std::string> names_of(const Module& m) {
  std::vector<std::string> names;
  for (const NamedTensor& t : m.state()) names.push_back(t.name);
  return names;
}

// --- Embedding ---------------------------------------------------------------------------------

TEST(Embedding, RepeatedIdsAddUpInTheGradient) {  // CASES LS-09
  Embedding table({.count = 3, .dim = 2});
  table.initialize(1);
  const Tensor ids = Tensor::of({3}, {1, 1, 2}, Dtype::I64);
  Tape tape;
  const Tensor y = table(ids);
  const Gradients g = tape.backward(y, {.cotangent = Tensor::of({3, 2}, {1, 2, 10, 20, 5, 6})});
  EXPECT_THAT(numbers(g[table.weight]), ElementsAre(0, 0, 11, 22, 5, 6));
  EXPECT_EQ(table.parameters()[0].role, Role::Embedding);
}

TEST(Embedding, ABadIdIsAnErrorWithPositionValueAndSize) {  // CASES LS-09
  Embedding table({.count = 3, .dim = 2});
  table.initialize(1);
  for (const double bad : {3.0, -1.0}) {
    EXPECT_THAT(message_of([&] {
                  (void)table(Tensor::of({2}, {0, bad}, Dtype::I64));
                }),
                testing::AllOf(HasSubstr("embedding"), HasSubstr(fmt::format("{}", bad)),
                               HasSubstr("1"), HasSubstr("3")));
  }
}

TEST(Embedding, PaddingStartsAsZerosAndLearnsNothing) {
  Embedding table({.count = 3, .dim = 2, .padding_idx = 1});
  table.initialize(1);
  EXPECT_THAT(numbers(table(Tensor::of({1}, {1}, Dtype::I64))), Each(0.0));
  Tape tape;
  const Tensor y = table(Tensor::of({2}, {1, 0}, Dtype::I64));
  const Gradients g = tape.backward(y, {.cotangent = Tensor::ones({2, 2})});
  EXPECT_THAT(numbers(g[table.weight]), ElementsAre(1, 1, 0, 0, 0, 0));
  EXPECT_EQ(table.describe(), "Embedding(3, 2, padding_idx=1)");
}

TEST(Embedding, GivesRunsOfRowsAsPositions) {
  Embedding table({.count = 4, .dim = 2});
  table.initialize(1);
  EXPECT_TRUE(table.rows(0, 4).shares_storage_with(table.weight));
  EXPECT_TRUE(same_bits(table.rows(1, 2), table(Tensor::of({2}, {1, 2}, Dtype::I64))));
  EXPECT_THROW((void)table.rows(2, 3), Error);
  EXPECT_THROW(Embedding({.count = 0, .dim = 2}), Error);
  EXPECT_THROW(Embedding({.count = 2, .dim = 2, .padding_idx = 2}), Error);
}

// --- Attention ---------------------------------------------------------------------------------

TEST(Attention, OptionsThatDoNotFitAreRefusedAtConstruction) {
  EXPECT_THAT(message_of([] { Attention({.dim = 6, .heads = 4}); }),
              HasSubstr("heads must divide dim"));
  EXPECT_THAT(message_of([] { Attention({.dim = 8, .heads = 4, .kv_heads = 3}); }),
              HasSubstr("kv_heads must divide heads; got heads 4, kv_heads 3"));
  EXPECT_THAT(message_of([] { Attention({.dim = 6, .heads = 2, .rotary = RotaryOptions{}}); }),
              HasSubstr("even head_dim"));
  EXPECT_THROW(Attention({.dim = 4, .dropout = 1.0}), Error);
  EXPECT_THROW(Attention({.dim = 4, .scale = -1.0}), Error);
  EXPECT_THROW(Attention({.dim = 0}), Error);
  EXPECT_THAT(
      message_of([] { Attention({.dim = 4, .fused = true, .value_init = constant_init(1.0)}); }),
      HasSubstr("value_init needs weight_init"));
}

TEST(Attention, NamesItsPartsByFamily) {
  Attention separate({.dim = 8, .heads = 2, .out_bias = false, .qk_norm = NormSpec::parse("rms")});
  EXPECT_THAT(names_of(separate), ElementsAre("q_proj.weight", "q_proj.bias", "k_proj.weight",
                                              "k_proj.bias", "v_proj.weight", "v_proj.bias",
                                              "q_norm.weight", "k_norm.weight", "o_proj.weight"));
  EXPECT_EQ(find(separate.state(), "q_norm.weight").shape(), Shape({4}));
  Attention fused({.dim = 8,
                   .heads = 4,
                   .kv_heads = 2,
                   .fused = true,
                   .qkv_bias = false,
                   .out_bias = false,
                   .names = {.output = "c_proj", .fused = "c_attn"}});
  EXPECT_THAT(names_of(fused), ElementsAre("c_attn.weight", "c_proj.weight"));
  EXPECT_EQ(find(fused.state(), "c_attn.weight").shape(), Shape({16, 8}));
  EXPECT_EQ(fused.describe(), "Attention(8, heads=4, kv_heads=2, causal)");
}

TEST(Attention, IsSoftmaxOfScaledScoresPerHead) {
  Attention layer({.dim = 6,
                   .heads = 2,
                   .kv_heads = 1,
                   .head_dim = 4,
                   .causal = false,
                   .scale = 0.3,
                   .qk_norm = NormSpec::parse("layer"),
                   .v_norm = NormSpec::parse("rms"),
                   .out_norm = NormSpec::parse("layer"),
                   .rotary = RotaryOptions{.theta = 100},
                   .head_scale = true});
  randomize(layer);
  const Tensor x = noise({2, 5, 6}, "x");
  const auto child = [&](const std::string& name) -> Layer& {
    for (Module* m : layer.children()) {
      if (m->name() == name) return *dynamic_cast<Layer*>(m);
    }
    throw Error("no " + name);
  };
  const auto heads = [](const Tensor& t, std::int64_t n) { return reshape(t, {2, 5, n, 4}); };
  const Tensor q = rotary(child("q_norm")(heads(child("q_proj")(x), 2)), {.theta = 100});
  const Tensor k = rotary(child("k_norm")(heads(child("k_proj")(x), 1)), {.theta = 100});
  const Tensor v = child("v_norm")(heads(child("v_proj")(x), 1));
  const Tensor a = composed_attention(q, k, v, {.scale = 0.3}) *
                   reshape(find(layer.state(), "head_scale"), {2, 1});
  const Tensor y = child("norm")(child("o_proj")(reshape(a, {2, 5, 8})));
  EXPECT_TRUE(close(layer(x), y, 1e-13));
}

TEST(Attention, NormsOfQueriesAndKeysMayCoverAllHeads) {
  Attention layer({.dim = 8,
                   .heads = 4,
                   .kv_heads = 2,
                   .qk_norm = NormSpec::parse("rms"),
                   .qk_norm_per_head = false});
  randomize(layer);
  const State s = layer.state();
  const Tensor x = noise({2, 3, 8}, "x");
  const auto map = [&](const Tensor& t, const std::string& name) {
    return linear(t, find(s, name + ".weight"), find(s, name + ".bias"));
  };
  const Tensor q = rms_norm(map(x, "q_proj"), {8}, find(s, "q_norm.weight"));
  const Tensor k = rms_norm(map(x, "k_proj"), {4}, find(s, "k_norm.weight"));
  const Tensor a = composed_attention(reshape(q, {2, 3, 4, 2}), reshape(k, {2, 3, 2, 2}),
                                      reshape(map(x, "v_proj"), {2, 3, 2, 2}), {.causal = true});
  EXPECT_TRUE(close(layer(x), map(reshape(a, {2, 3, 8}), "o_proj"), 1e-14));
}

TEST(Attention, AFusedProjectionIsTheThreeStacked) {
  Attention fused({.dim = 8, .heads = 4, .kv_heads = 2, .fused = true});
  Attention separate({.dim = 8, .heads = 4, .kv_heads = 2});
  randomize(fused);
  separate.to(Dtype::F64);
  State state;
  for (const NamedTensor& t : fused.state()) {
    if (t.name.starts_with("o_proj")) {
      state.push_back(t);
      continue;
    }
    const std::string kind = t.name.substr(t.name.find('.'));
    state.push_back({"q_proj" + kind, slice(t.value, 0, 0, 8)});
    state.push_back({"k_proj" + kind, slice(t.value, 0, 8, 12)});
    state.push_back({"v_proj" + kind, slice(t.value, 0, 12, 16)});
  }
  separate.load(state);
  const Tensor x = noise({2, 3, 8}, "x");
  EXPECT_TRUE(close(fused(x), separate(x), 1e-14));
}

TEST(Attention, WrongInputsAreErrorsWithTheRule) {
  Attention layer({.dim = 4, .heads = 2});
  layer.initialize(1);
  EXPECT_THAT(message_of([&] {
                (void)layer(Tensor::ones({2, 4}));
              }),
              HasSubstr("needs x [B, T, 4]; got x f32 [2, 4]"));
  const Tensor x = Tensor::ones({1, 2, 4});
  EXPECT_THAT(message_of([&] { (void)layer(x, {.memory = x}); }), HasSubstr("causal = false"));
  Attention cross({.dim = 4, .heads = 2, .causal = false});
  cross.initialize(1);
  EXPECT_THAT(message_of([&] {
                (void)cross(x, {.memory = Tensor::ones({2, 3, 4})});
              }),
              HasSubstr("memory must be [1, Tk, 4]"));
  KeyValueCache cache(1, 4);
  EXPECT_THROW((void)cross(x, {.cache = &cache}), Error);
}

TEST(Attention, DropsWeightsInTrainModeOnlyAndRepeats) {
  Attention layer({.dim = 8, .heads = 2, .dropout = 0.5});
  layer.initialize(5);
  const Tensor x = noise({2, 16, 8}, "x").detached_copy(Dtype::F32);
  const Tensor first = layer(x);
  const Tensor second = layer(x);
  EXPECT_FALSE(same_bits(first, second));
  layer.initialize(5);
  EXPECT_TRUE(same_bits(layer(x), first));
  layer.eval();
  EXPECT_TRUE(same_bits(layer(x), layer(x)));
}

TEST(Attention, ACacheGivesTheOutputsOfTheWholeSequence) {
  Attention layer({.dim = 8, .heads = 4, .kv_heads = 2, .rotary = RotaryOptions{}});
  randomize(layer);
  const Tensor x = noise({3, 7, 8}, "x");
  const NoRecord inference;
  const Tensor whole = layer(x);
  KeyValueCache cache(1, 9);
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    const Tensor y = layer(slice(x, 1, begin, end), {.cache = &cache});
    cache.advance(end - begin);
    return y;
  };
  const Tensor y = concat({part(0, 3), part(3, 4), part(4, 6), part(6, 7)}, 1);
  EXPECT_EQ(cache.length(), 7);
  EXPECT_TRUE(close(y, whole, 1e-14));
}

TEST(KeyValueCache, ChecksRoomLayersShapesAndGradients) {
  KeyValueCache cache(2, 4);
  const Tensor k = Tensor::ones({1, 3, 2, 2});
  (void)cache.append(0, k, k);
  EXPECT_EQ(cache.length(), 0);
  cache.advance(3);
  EXPECT_THAT(message_of([&] { (void)cache.append(0, k, k); }),
              HasSubstr("has room for 4 tokens; 3 held, 3 more"));
  EXPECT_THROW((void)cache.append(2, k, k), Error);
  EXPECT_THROW((void)cache.append(0, Tensor::ones({2, 1, 2, 2}), Tensor::ones({2, 1, 2, 2})),
               ShapeError);
  EXPECT_THROW(cache.advance(2), Error);
  EXPECT_THROW(KeyValueCache(0, 1), Error);
  cache.clear();
  Tensor leaf = Tensor::ones({1, 1, 2, 2});
  leaf.set_requires_grad();
  const Tape tape;
  EXPECT_THAT(message_of([&] { (void)cache.append(0, leaf, leaf); }), HasSubstr("for inference"));
}

// --- Mlp ---------------------------------------------------------------------------------------

TEST(Mlp, AppliesItsFunctionBetweenTwoLinearMaps) {
  const Tensor x = noise({2, 3, 4}, "x");
  for (const char* kind : {"gelu", "gelu_tanh", "relu", "swiglu"}) {
    Mlp layer(
        {.dim = 4, .hidden = 5, .kind = parse_mlp_kind(kind), .norm = NormSpec::parse("rms")});
    randomize(layer);
    const State s = layer.state();
    const auto map = [&](const Tensor& t, const std::string& name) {
      return linear(t, find(s, name + ".weight"), find(s, name + ".bias"));
    };
    const Tensor up = map(x, "fc1");
    const Tensor h = layer.o.kind == MlpKind::Gelu       ? gelu(up, Gelu::Erf)
                     : layer.o.kind == MlpKind::GeluTanh ? gelu(up, Gelu::Tanh)
                     : layer.o.kind == MlpKind::Relu     ? relu(up)
                                                         : silu(map(x, "gate")) * up;
    const Tensor y = map(rms_norm(h, {5}, find(s, "norm.weight")), "fc2");
    EXPECT_TRUE(close(layer(x), y, 1e-14)) << kind;
    EXPECT_EQ(to_string(layer.o.kind), kind);
  }
}

TEST(Mlp, DropsInTrainModeOnly) {
  Mlp layer({.dim = 64, .dropout = 0.5});
  layer.initialize(1);
  const Tensor x = Tensor::ones({10, 64});
  const auto zeros = [&] {
    const std::vector<double> y = numbers(layer(x));
    return std::ranges::count(y, 0.0);
  };
  EXPECT_NEAR(static_cast<double>(zeros()), 320, 64);
  layer.eval();
  EXPECT_EQ(zeros(), 0);
}

TEST(Mlp, HasDefaultsAndChecksItsOptions) {
  EXPECT_EQ(Mlp({.dim = 128}).o.hidden, 512);
  EXPECT_EQ(Mlp({.dim = 128, .kind = MlpKind::SwiGlu}).o.hidden, 344);  // 341.3, a multiple of 8
  EXPECT_EQ(Mlp({.dim = 4, .bias = false}).describe(), "Mlp(4, 16, gelu, bias=false)");
  EXPECT_THROW(Mlp({.dim = 0}), Error);
  EXPECT_THAT(message_of([] { (void)parse_mlp_kind("elu"); }),
              HasSubstr("known: gelu, gelu_tanh, relu, swiglu"));
}

}  // namespace
}  // namespace steady
