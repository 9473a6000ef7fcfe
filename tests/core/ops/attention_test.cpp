#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <steadygrad/core/ops/attention.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/core/tape.hpp>
#include <vector>

#include "tests/core/ops/op_test.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/op_table.hpp"

namespace steady {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::DoubleNear;
using testing::Each;
using testing::HasSubstr;
using testing::Pointwise;

using Attend = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const AttentionOptions&);

/// Inputs: q, k, v and, when there are four, the mask.
TensorFunction with(Attend attend, const AttentionOptions& options) {
  return [attend, options](Inputs in) {
    AttentionOptions o = options;
    if (in.size() > 3) o.mask = in[3];
    return attend(in[0], in[1], in[2], o);
  };
}

std::vector<OpInput> qkv(std::int64_t batch, std::int64_t queries, std::int64_t keys,
                         std::int64_t heads, std::int64_t kv_heads, std::int64_t width) {
  return {real({batch, queries, heads, width}), real({batch, keys, kv_heads, width}),
          real({batch, keys, kv_heads, width})};
}

std::vector<OpInput> qkv_mask(std::vector<OpInput> inputs, const Tensor& mask) {
  inputs.push_back(values(mask));
  return inputs;
}

/// Key j of batch b is kept: left padding, right padding, holes, nothing at all.
Tensor padding_mask(std::int64_t batch, std::int64_t keys) {
  Tensor mask = Tensor::empty({batch, keys}, Dtype::I64);
  const auto out = mask.mutable_data<std::int64_t>();
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t j = 0; j < keys; ++j) {
      const bool keep = b % 4 == 0   ? j >= keys / 3
                        : b % 4 == 1 ? j < keys - keys / 3
                        : b % 4 == 2 ? j % 3 != 1
                                     : false;
      out[static_cast<std::size_t>(b * keys + j)] = keep ? 7 : 0;
    }
  }
  return mask;
}

std::vector<OpRow> rows_of(Attend attend) {
  const auto row = [&](const char* name, AttentionOptions options, std::vector<OpInput> small,
                       std::vector<OpInput> large) {
    return OpRow{.name = name,
                 .f = with(attend, options),
                 .inputs = std::move(small),
                 .large = std::move(large)};
  };
  return {
      row("plain", {}, qkv(2, 3, 4, 2, 2, 3), qkv(2, 100, 90, 3, 3, 20)),
      row("causal", {.causal = true, .scale = 0.7}, qkv(1, 4, 4, 2, 2, 3),
          qkv(2, 150, 150, 2, 2, 16)),
      row("grouped_heads", {.causal = true}, qkv(1, 3, 3, 6, 2, 2), qkv(3, 70, 70, 6, 2, 16)),
      row("last_queries", {.causal = true}, qkv(2, 2, 5, 2, 1, 3), qkv(2, 40, 130, 4, 1, 16)),
      row("first_queries_see_nothing", {.causal = true}, qkv(1, 5, 3, 2, 1, 2),
          qkv(1, 170, 60, 2, 1, 8)),
      row("padding", {}, qkv_mask(qkv(4, 3, 4, 2, 1, 2), padding_mask(4, 4)),
          qkv_mask(qkv(4, 70, 90, 2, 1, 8), padding_mask(4, 90))),
      row("causal_padding", {.causal = true}, qkv_mask(qkv(4, 4, 4, 1, 1, 2), padding_mask(4, 4)),
          qkv_mask(qkv(4, 90, 90, 2, 2, 8), padding_mask(4, 90))),
      row("dropout", {.causal = true, .dropout = 0.3, .seed = 5}, qkv(1, 4, 4, 2, 1, 2),
          qkv(2, 90, 90, 4, 2, 8)),
      row("dropout_and_padding", {.dropout = 0.5, .seed = 5, .stream = "drop", .call = 3},
          qkv_mask(qkv(4, 3, 4, 2, 1, 2), padding_mask(4, 4)), {}),
      row("first_keys_of_a_cache", {.causal = true, .keys = 3}, qkv(2, 2, 6, 2, 1, 2),
          qkv(2, 20, 90, 2, 1, 8)),
      row("long", {.causal = true}, qkv(1, 2, 3, 1, 1, 1), qkv(1, 40, 1100, 2, 1, 4)),
  };
}

const bool rows = register_ops("Attention", rows_of(attention));
const bool composed_rows = register_ops("ComposedAttention", rows_of(composed_attention));

Tensor random_tensor(const Shape& shape, const char* name, Dtype dtype = Dtype::F64) {
  Random random(3, name);
  Tensor x = Tensor::empty(shape, Dtype::F64);
  for (double& value : x.mutable_data<double>()) value = random.normal();
  return x.detached_copy(dtype);
}

/// [B, H, T, d] of the file and [B, T, H, d] here.
Tensor exchanged(const Tensor& x) { return transpose(x, 1, 2); }

TEST(Attention, EqualsTheReference) {
  for (const GoldenCase& golden : Golden("ops.h5").cases("sdpa")) {
    SCOPED_TRACE(golden.path());
    for (const Attend attend : {attention, composed_attention}) {
      expect_golden(golden, [&](GoldenInputs& in) {
        return exchanged(attend(exchanged(in["q"]), exchanged(in["k"]), exchanged(in["v"]),
                                {.causal = golden.attribute_int("causal") != 0,
                                 .mask = golden.has("in/keep") ? in["keep"] : Tensor{},
                                 .scale = golden.attribute_double("scale")}));
      });
    }
  }
}

struct Outcome {
  Tensor y, dq, dk, dv;
};

Outcome run(Attend attend, const Tensor& q, const Tensor& k, const Tensor& v,
            const AttentionOptions& options, const Tensor& cotangent) {
  const Tensor a = q.detached_copy().set_requires_grad();
  const Tensor b = k.detached_copy().set_requires_grad();
  const Tensor c = v.detached_copy().set_requires_grad();
  Tape tape;
  const Tensor y = attend(a, b, c, options);
  const Gradients g = tape.backward(y, {.cotangent = cotangent});
  return {y.detached_copy(), g[a], g[b], g[c]};
}

void expect_same(const Outcome& got, const Outcome& want, double tolerance) {
  EXPECT_TRUE(close(got.y, want.y, tolerance));
  EXPECT_TRUE(close(got.dq, want.dq, tolerance));
  EXPECT_TRUE(close(got.dk, want.dk, tolerance));
  EXPECT_TRUE(close(got.dv, want.dv, tolerance));
}

TEST(Attention, EqualsTheComposedFormAtEveryBlockBoundary) {
  for (const std::int64_t tokens : {1, 31, 63, 64, 65, 129, 513}) {
    SCOPED_TRACE(tokens);
    const Tensor q = random_tensor({4, tokens, 2, 8}, "q");
    const Tensor k = random_tensor({4, tokens, 1, 8}, "k");
    const Tensor v = random_tensor({4, tokens, 1, 8}, "v");
    const Tensor dy = random_tensor({4, tokens, 2, 8}, "dy");
    for (const bool causal : {false, true}) {
      const AttentionOptions options{
          .causal = causal, .mask = padding_mask(4, tokens), .dropout = 0.2, .seed = 9};
      const Outcome want = run(composed_attention, q, k, v, options, dy);
      expect_same(run(attention, q, k, v, options, dy), want, 1e-12);
      const auto single = [](const Tensor& x) { return x.detached_copy(Dtype::F32); };
      expect_same(run(attention, single(q), single(k), single(v), options, single(dy)),
                  {single(want.y), single(want.dq), single(want.dk), single(want.dv)}, 5e-6);
    }
  }
}

TEST(Attention, RowWithoutAKeyGivesZeros) {  // CASES LS-06
  // Two queries of one token each, as a batch: the first sees keys 0 and 1, the second none.
  const Tensor q = Tensor::of({2, 1, 1, 2}, {1, 0, 0.5, 2}, Dtype::F64);
  const Tensor k = Tensor::of({2, 3, 1, 2}, {1, 1, 0, 1, 2, -1, 1, 1, 0, 1, 2, -1}, Dtype::F64);
  const Tensor v = Tensor::of({2, 3, 1, 2}, {1, 2, 3, 4, 5, -6, 1, 2, 3, 4, 5, -6}, Dtype::F64);
  const Tensor dy = Tensor::of({2, 1, 1, 2}, {1, 2, 5, 7}, Dtype::F64);
  const AttentionOptions options{.mask = ids({2, 3}, {1, 1, 0, 0, 0, 0})};
  for (const Attend attend : {attention, composed_attention}) {
    const Outcome got = run(attend, q, k, v, options, dy);
    const auto expect = [](const Tensor& x, std::vector<double> want) {
      want.resize(static_cast<std::size_t>(x.numel()));  // all zero in the second batch element
      EXPECT_THAT(numbers(x), Pointwise(DoubleNear(1e-14), want));
    };
    expect(got.y, {1.6604769013466862, 2.6604769013466862});
    expect(got.dq, {-0.9383915792706623, 0});
    expect(got.dk, {-0.9383915792706623, 0, 0.9383915792706623, 0, 0, 0});
    expect(got.dv,
           {0.6697615493266569, 1.3395230986533138, 0.3302384506733431, 0.6604769013466862, 0, 0});
  }
}

TEST(Attention, MasksCombineToFiniteNumbers) {  // CASES LS-07
  // Causal and padding mask hide the same keys; in float32 no sum of fill values overflows.
  const Tensor x = random_tensor({1, 4, 1, 2}, "x", Dtype::F32);
  const Outcome got =
      run(attention, x, x, x, {.causal = true, .mask = ids({1, 4}, {0, 1, 0, 0})}, x);
  for (const Tensor& t : {got.y, got.dq, got.dk, got.dv}) {
    for (const double value : numbers(t)) EXPECT_TRUE(std::isfinite(value));
  }
  EXPECT_EQ(numbers(got.y)[0], 0);  // query 0 sees only key 0, which is masked
  EXPECT_EQ(numbers(got.y)[2], numbers(x)[2]);
}

TEST(Attention, CausalMaskComesBeforeTheSoftmax) {  // CASES LS-08
  // One feature per key: with v the identity, y is the row of weights.
  const Tensor q = Tensor::of({1, 2, 1, 2}, {1, 0, 0, 1}, Dtype::F64);
  const Tensor k = Tensor::of({1, 2, 1, 2}, {0.3, 1, 9, 2}, Dtype::F64);
  const Tensor v = Tensor::of({1, 2, 1, 2}, {1, 0, 0, 1}, Dtype::F64);
  const std::vector<double> want{1, 0, 0.2689414213699951, 0.7310585786300049};
  EXPECT_THAT(numbers(attention(q, k, v, {.causal = true, .scale = 1})),
              Pointwise(DoubleNear(1e-15), want));
}

TEST(Attention, TokenChangesNothingBeforeIt) {  // CASES LS-08
  constexpr std::int64_t Tokens = 150;
  constexpr std::int64_t Width = 2 * 16;
  for (const Dtype dtype : {Dtype::F32, Dtype::F64}) {
    const Tensor x = random_tensor({1, Tokens, 2, 16}, "x", dtype);
    const Tensor y = attention(x, x, x, {.causal = true});
    for (const std::int64_t t : {0, 1, 63, 64, 100, 149}) {
      Tensor changed = x.detached_copy();
      dispatch_float("test", dtype, [&]<FloatElement T>() {
        changed.mutable_data<T>()[static_cast<std::size_t>(t * Width + 3)] += T{2};
      });
      const Tensor z = attention(changed, changed, changed, {.causal = true});
      EXPECT_TRUE(same_bits(slice(y, 1, 0, t), slice(z, 1, 0, t))) << t;
      EXPECT_FALSE(same_bits(slice(y, 1, t, t + 1), slice(z, 1, t, t + 1))) << t;
    }
  }
}

TEST(Attention, PaddingAtTheEndIsNeverRead) {
  Tensor k = random_tensor({1, 5, 1, 4}, "k");
  Tensor v = random_tensor({1, 5, 1, 4}, "v");
  const Tensor q = random_tensor({1, 5, 2, 4}, "q");
  const Tensor y = attention(q, k, v, {.mask = ids({1, 5}, {1, 1, 1, 0, 0})});
  for (Tensor* x : {&k, &v}) {
    for (std::size_t i = 12; i < 20; ++i)
      x->mutable_data<double>()[i] = std::numeric_limits<double>::quiet_NaN();
  }
  EXPECT_TRUE(same_bits(attention(q, k, v, {.mask = ids({1, 5}, {1, 1, 1, 0, 0})}), y));
  EXPECT_TRUE(same_bits(attention(q, k, v, {.keys = 3}), y));
  EXPECT_TRUE(same_bits(
      attention(q, k, v, {.mask = ids({1, 5}, {1, 1, 1, 0, 0}).detached_copy(Dtype::I32)}), y));
}

TEST(Attention, NaNInAScoreIsSeen) {
  Tensor q = random_tensor({1, 2, 1, 4}, "q", Dtype::F32);
  q.mutable_data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  const Tensor k = random_tensor({1, 2, 1, 4}, "k", Dtype::F32);
  const std::vector<double> y = numbers(attention(q, k, k));
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(std::isnan(y[i]), i < 4) << i;
}

TEST(Attention, LargeScoresStayExactInFloat32) {
  // Scores of about 1e4 that differ by 1: a rounded log-sum-exp would be off by 1e-3 in backward.
  const Tensor q = Tensor::of({1, 1, 1, 1}, {100});
  const Tensor k = Tensor::of({1, 3, 1, 1}, {100, 100.01, 100.02});
  const Tensor v = Tensor::of({1, 3, 1, 1}, {1, 2, 4});
  const Tensor dy = Tensor::of({1, 1, 1, 1}, {1});
  const auto wide = [](const Tensor& x) { return x.detached_copy(Dtype::F64); };
  const Outcome got = run(attention, q, k, v, {}, dy);
  const Outcome want = run(attention, wide(q), wide(k), wide(v), {}, wide(dy));
  // One unit in the last place of a score is 1e-3 at most; the weights follow it exactly.
  EXPECT_TRUE(close(wide(got.dv), want.dv, 1e-3));
  double sum = 0;
  for (const double p : numbers(got.dv)) sum += p;
  EXPECT_NEAR(sum, 1, 3e-7);
}

TEST(Attention, DropsWeightsByStreamCallAndPosition) {
  constexpr std::int64_t Keys = 200;
  constexpr double P = 0.25;
  // Equal scores and v = 1: y is the mean of the factors 0 and 1 / (1 - P).
  const Tensor q = Tensor::zeros({2, 3, 2, 1}, Dtype::F64);
  const Tensor k = Tensor::zeros({2, Keys, 1, 1}, Dtype::F64);
  const Tensor v = Tensor::ones({2, Keys, 1, 1}, Dtype::F64);
  const std::vector<double> y =
      numbers(attention(q, k, v, {.dropout = P, .seed = 4, .stream = "drop", .call = 6}));
  const Random stream(4, "drop");
  for (std::uint64_t at = 0; at < 12; ++at) {  // y is [b, i, h], the words go by (b, h, i, j)
    const std::uint64_t row = at / 6 * 6 + at % 2 * 3 + at / 2 % 3;
    double mean = 0;
    for (std::uint64_t j = 0; j < Keys; ++j) {
      const bool dropped = stream.word((std::uint64_t{6} << 36) + row * Keys + j) < P * 0x1p32;
      mean += dropped ? 0 : 1 / (1 - P) / Keys;
    }
    EXPECT_NEAR(y[at], mean, 1e-12);
  }
}

TEST(Attention, CacheGivesTheRowsOfTheWhole) {
  constexpr std::int64_t Tokens = 70;
  const Tensor q = random_tensor({2, Tokens, 4, 16}, "q", Dtype::F32);
  const Tensor k = random_tensor({2, Tokens, 2, 16}, "k", Dtype::F32);
  const Tensor v = random_tensor({2, Tokens, 2, 16}, "v", Dtype::F32);
  const Tensor whole = attention(q, k, v, {.causal = true});
  for (const std::int64_t t : {0, 1, 40, 63, 69}) {
    const Tensor row = attention(slice(q, 1, t, t + 1), k, v, {.causal = true, .keys = t + 1});
    EXPECT_TRUE(close(row, slice(whole, 1, t, t + 1), 1e-6)) << t;
  }
}

TEST(Attention, KeepsALogSumExpAndNoWeights) {
  const Tensor x = random_tensor({2, 64, 4, 8}, "x", Dtype::F32).set_requires_grad();
  Tape tape;
  const std::int64_t before = memory_stats().live;
  const Tensor y = attention(x, x, x, {.causal = true});
  EXPECT_EQ(memory_stats().live - before, y.numel() * 4 + 2 * 64 * 4 * 8);
}

TEST(Attention, GivesOnlyTheGradientsThatAreWanted) {
  const Tensor q = random_tensor({1, 3, 2, 4}, "q").set_requires_grad();
  const Tensor k = random_tensor({1, 3, 2, 4}, "k");
  Tape tape;
  const Gradients g =
      tape.backward(attention(q, k, k), {.cotangent = Tensor::ones(q.shape(), Dtype::F64)});
  EXPECT_EQ(g.size(), 1U);
  EXPECT_TRUE(
      close(g[q], run(composed_attention, q, k, k, {}, Tensor::ones(q.shape(), Dtype::F64)).dq));
}

TEST(Attention, OfNoTokensIsEmptyOrZero) {
  EXPECT_EQ(
      attention(Tensor::ones({2, 0, 2, 4}), Tensor::ones({2, 3, 1, 4}), Tensor::ones({2, 3, 1, 4}))
          .shape(),
      (Shape{2, 0, 2, 4}));
  const Tensor q = Tensor::ones({2, 3, 2, 4}, Dtype::F64);
  const Tensor none = Tensor::empty({2, 0, 1, 4}, Dtype::F64);
  for (const bool causal : {false, true}) {
    const Outcome got = run(attention, q, none, none, {.causal = causal}, q);
    EXPECT_THAT(numbers(got.y), Each(0.0));
    EXPECT_THAT(numbers(got.dq), Each(0.0));
  }
}

TEST(Attention, RefusesWhatDoesNotFit) {
  const Tensor q = Tensor::ones({2, 3, 4, 8});
  const Tensor k = Tensor::ones({2, 5, 2, 8});
  const auto refusal = [&](const Tensor& a, const Tensor& b, const Tensor& c,
                           const AttentionOptions& options = {}) {
    const std::string text = message_of([&] { (void)attention(a, b, c, options); });
    EXPECT_EQ(text, message_of([&] { (void)composed_attention(a, b, c, options); }));
    return text;
  };
  EXPECT_THAT(refusal(Tensor::ones({2, 3, 8}), k, k),
              AllOf(HasSubstr("attention: needs q [B, Tq, H, d]"), HasSubstr("q f32 [2, 3, 8]")));
  EXPECT_THAT(refusal(q, k, Tensor::ones({2, 4, 2, 8})), HasSubstr("v f32 [2, 4, 2, 8]"));
  EXPECT_THAT(refusal(q, Tensor::ones({1, 5, 2, 8}), Tensor::ones({1, 5, 2, 8})),
              HasSubstr("k f32 [1, 5, 2, 8]"));
  const Tensor three = Tensor::ones({2, 5, 3, 8});
  EXPECT_THAT(refusal(q, three, three), HasSubstr("4 heads of q must be a multiple of the 3"));
  EXPECT_THAT(refusal(q, k, k, {.mask = Tensor::zeros({2, 3}, Dtype::I64)}),
              AllOf(HasSubstr("[B, Tk] = [2, 5]"), HasSubstr("mask i64 [2, 3]")));
  EXPECT_THAT(refusal(q, k, k, {.mask = Tensor::zeros({2, 5})}), HasSubstr("mask f32 [2, 5]"));
  EXPECT_THAT(refusal(q, k, k, {.dropout = 1}), HasSubstr("dropout must be in [0, 1); got 1"));
  EXPECT_THAT(refusal(q, k, k, {.dropout = -0.5}), HasSubstr("dropout must be in [0, 1)"));
  EXPECT_THAT(refusal(q, k, k, {.dropout = std::nan("")}), HasSubstr("dropout"));
  EXPECT_THAT(refusal(q, k, k, {.scale = -1}), HasSubstr("scale must be finite and positive"));
  EXPECT_THAT(refusal(q, k, k, {.keys = 6}), HasSubstr("keys must be in 0 .. 5; got 6"));
  EXPECT_THAT(refusal(q, k, k, {.dropout = 0.1, .call = std::uint64_t{1} << 28}),
              HasSubstr("call < 2^28"));
  EXPECT_THROW((void)attention(q, k.detached_copy(Dtype::F64), k), ShapeError);
  EXPECT_THROW((void)attention(ids({1, 1, 1, 1}, {1}), k, k), ShapeError);
  EXPECT_THROW((void)attention(q, k, Tensor{}), ShapeError);
}

}  // namespace
}  // namespace steady
