// Sampling: how a token is drawn, and the text of a decoder with and without its cache.
#include <steadygrad/layers/generate.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/tape.hpp>

#include "tests/core/ops/op_test.hpp"
#include "tests/layers/transformer_testing.hpp"
#include "tests/support/golden.hpp"

namespace steady {
namespace {

using namespace transformer_testing;
using testing::HasSubstr;
using testing_support::message_of;

using Tokens = std::vector<std::int64_t>;

/// Share of each token in 20,000 draws.
std::map<std::int64_t, double> shares(const Tensor& logits, const SampleOptions& options) {
  Random random(3, "shares");
  std::map<std::int64_t, double> count;
  for (int i = 0; i < 20000; ++i) count[sample(logits, options, random)] += 1.0 / 20000;
  return count;
}

TEST(Sample, DrawsFromTheSoftmaxAtItsTemperature) {
  const Tensor logits = Tensor::of({3}, {std::log(2.0), std::log(3.0), std::log(5.0)}, Dtype::F64);
  auto count = shares(logits, {});
  EXPECT_NEAR(count[0], 0.2, 0.015);  // five standard deviations: 0.0141
  EXPECT_NEAR(count[1], 0.3, 0.017);
  EXPECT_NEAR(count[2], 0.5, 0.018);
  count = shares(logits, {.temperature = 0.5});  // squares: 4, 9, 25
  EXPECT_NEAR(count[0], 4.0 / 38, 0.011);
  EXPECT_NEAR(count[2], 25.0 / 38, 0.017);
}

TEST(Sample, TopKKeepsTheLikeliest) {
  const Tensor logits = Tensor::of({4}, {1, 2, 2, 0});
  auto count = shares(logits, {.top_k = 2});
  EXPECT_EQ(count.size(), 2U);
  EXPECT_NEAR(count[1], 0.5, 0.018);
  EXPECT_NEAR(count[2], 0.5, 0.018);
  EXPECT_EQ(shares(logits, {.top_k = 1}).begin()->first, 1);  // the lower id of a tie
  EXPECT_EQ(shares(logits, {.top_k = 9}).size(), 4U);
}

TEST(Sample, NearTiesTakeThePlacesOfTheirIds) {
  // Rounding errors in the logits, as between a cached and an uncached pass, exchange nothing.
  const Tensor flat = Tensor::zeros({1000});
  Tensor noisy = Tensor::empty({1000});
  Random errors(5, "errors");
  for (float& v : noisy.mutable_data<float>()) v = 1e-7F * static_cast<float>(errors.normal());
  for (const std::int64_t top_k : {0, 1000}) {
    Random a(3, "a");
    Random b(3, "a");
    for (int i = 0; i < 200; ++i) {
      EXPECT_EQ(sample(flat, {.top_k = top_k}, a), sample(noisy, {.top_k = top_k}, b));
    }
  }
}

TEST(Sample, TemperatureZeroTakesTheLargestAndDrawsNothing) {
  Random random(3, "a");
  Random other(3, "a");
  EXPECT_EQ(sample(Tensor::of({3}, {1, 7, 7}), {.temperature = 0}, random), 1);
  EXPECT_EQ(random.next_u32(), other.next_u32());
}

TEST(Sample, WhatCannotBeDrawnFromIsRefused) {
  Random random(3, "a");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_THROW((void)sample(Tensor::of({2}, {1, nan}), {}, random), NonFiniteError);
  EXPECT_THROW((void)sample(Tensor::of({2}, {1, inf}), {}, random), NonFiniteError);
  EXPECT_THROW((void)sample(Tensor::of({2}, {-inf, -inf}), {}, random), NonFiniteError);
  EXPECT_EQ(sample(Tensor::of({2}, {-inf, 0}), {}, random), 1);
  EXPECT_THROW((void)sample(Tensor::ones({1, 2}), {}, random), ShapeError);
  EXPECT_THROW((void)sample(Tensor::ones({2}), {.temperature = -1}, random), Error);
  EXPECT_THROW((void)sample(Tensor::ones({2}), {.top_k = -1}, random), Error);
}

/// Decoders whose logits spread enough for text that is not constant.
std::vector<Decoder::Options> models() {
  const Decoder::Sizes sizes{.vocab = 31, .context = 16, .dim = 32, .layers = 2, .heads = 4};
  std::vector<Decoder::Options> all{Decoder::gpt2(sizes), Decoder::minimind(sizes, 2)};
  for (Decoder::Options& o : all) {
    o.init_std = 0.3;
    o.dropout = 0.2;  // off in eval mode
  }
  return all;
}

TEST(Generate, TheCacheChangesNoToken) {
  for (const Decoder::Options& o : models()) {
    Decoder model(o);
    model.initialize(6);
    model.eval();
    for (const double temperature : {0.0, 1.0}) {
      // Past the context of 16, so that older tokens are forgotten several times.
      GenerateOptions options{
          .count = 60, .sample = {.temperature = temperature, .top_k = 20}, .seed = 8};
      const Tokens with = generate(model, Tokens{1, 2, 3}, options);
      options.cache = false;
      const Tokens without = generate(model, Tokens{1, 2, 3}, options);
      EXPECT_EQ(with, without) << to_string(o.family) << ", temperature " << temperature;
      EXPECT_GT(std::ranges::max(with) - std::ranges::min(with), 5);
    }
  }
}

TEST(Generate, CachedLogitsAreThoseOfTheWholeSequence) {
  for (const Decoder::Options& o : models()) {
    Decoder model(o);
    model.initialize(6);
    model.eval();
    model.to(Dtype::F64);
    const NoRecord inference;
    const Tensor ids = random_ids({2, 16}, 31);
    const Tensor whole = model(ids);
    KeyValueCache cache = model.make_cache();
    for (std::int64_t t = 0; t < 16; ++t) {
      const Tensor one = model(slice(ids, 1, t, t + 1), {.cache = &cache});
      EXPECT_TRUE(testing_support::close(one, slice(whole, 1, t, t + 1), 1e-13)) << t;
    }
  }
}

TEST(Generate, IsAFunctionOfModelPromptAndSeed) {
  Decoder model(models()[0]);
  model.initialize(6);
  model.eval();
  Tokens seen;
  const auto on_token = [&](std::int64_t token) { seen.push_back(token); };
  const Tokens first = generate(model, Tokens{5}, {.count = 12, .seed = 1, .on_token = on_token});
  EXPECT_EQ(first.size(), 13U);
  EXPECT_EQ(Tokens(first.begin() + 1, first.end()), seen);
  EXPECT_EQ(generate(model, Tokens{5}, {.count = 12, .seed = 1}), first);
  EXPECT_NE(generate(model, Tokens{5}, {.count = 12, .seed = 2}), first);
}

TEST(Generate, TakesPromptsLongerThanTheContext) {
  Decoder model(models()[1]);
  model.initialize(6);
  model.eval();
  const Tokens prompt(40, 7);
  EXPECT_EQ(generate(model, prompt, {.count = 3}).size(), 43U);
}

TEST(Generate, TrainModeAndAnEmptyPromptAreRefused) {
  Decoder model(models()[0]);
  model.initialize(6);
  EXPECT_THAT(message_of([&] { (void)generate(model, Tokens{1}); }),
              HasSubstr("train mode: call eval() first"));
  model.eval();
  EXPECT_THROW((void)generate(model, Tokens{}), Error);
  EXPECT_THAT(message_of([&] { (void)generate(model, Tokens{31}); }), HasSubstr("31"));
}

TEST(Generate, RecordsNothingOnACallersTape) {
  Decoder model(models()[0]);
  model.initialize(6);
  model.eval();
  const Tape tape;
  EXPECT_EQ(generate(model, Tokens{1}, {.count = 2}).size(), 3U);
  EXPECT_EQ(tape.size(), 0);
}

}  // namespace
}  // namespace steady
