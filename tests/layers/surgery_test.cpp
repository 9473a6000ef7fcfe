#include <steadygrad/layers/surgery.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/pool.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/layers/activation.hpp>
#include <steadygrad/layers/conv2d.hpp>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/sequential.hpp>

#include "tests/layers/golden_models.hpp"
#include "tests/layers/norm/norm_testing.hpp"
#include "tests/support/message_of.hpp"

namespace steady {
namespace {

using namespace norm_testing;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::GoldenCnn;
using testing_support::message_of;

/// Values that no symmetry makes special; running variances positive.
void scramble(Module& module) {
  for (const NamedTensor& t : module.state()) {
    if (!is_float(t.value.dtype())) continue;
    const bool positive = t.name.ends_with("running_var");
    const Tensor values = noise(t.value.shape(), t.name, positive ? 2.0 : 0.3, 0.2);
    Tensor(t.value).copy_from((positive ? abs(values) : values).detached_copy(t.value.dtype()));
  }
}

std::vector<std::vector<double>> numbers(const Module& module) {
  std::vector<std::vector<double>> all;
  for (const NamedTensor& t : module.state()) all.push_back(values(t.value));
  return all;
}

TEST(FoldBatchNorm, OfWeightsIsTheAlgebra) {
  BatchNorm norm({.features = 2, .eps = 0.5});
  norm.to(Dtype::F64);
  norm.load({{"weight", Tensor::of({2}, {3, -1}, Dtype::F64)},
             {"bias", Tensor::of({2}, {0.5, 7}, Dtype::F64)},
             {"running_mean", Tensor::of({2}, {1, 2}, Dtype::F64)},
             {"running_var", Tensor::of({2}, {3.5, 0.5}, Dtype::F64)},
             {"num_batches_tracked", Tensor::scalar(1, Dtype::I64)}});
  const Tensor w = Tensor::of({2, 2}, {1, 2, 3, 4}, Dtype::F64);
  const FoldedMap folded = fold_batch_norm(w, Tensor::of({2}, {5, 1}, Dtype::F64), norm);
  expect_values(folded.weight, {1.5, 3, -3, -4}, 1e-15);  // r = 3 / 2 and -1 / 1
  expect_values(folded.bias, {6.5, 8}, 1e-15);            // r (b - m) + shift
  expect_values(fold_batch_norm(w, {}, norm).bias, {-1, 9}, 1e-15);
  BatchNorm plain({.features = 2, .eps = 0, .affine = false});
  expect_values(fold_batch_norm(w, {}, plain).weight, values(w), 1e-15);
  EXPECT_THROW((void)fold_batch_norm(w, {}, BatchNorm({.features = 3})), Error);
  EXPECT_THROW(
      (void)fold_batch_norm(w, {}, BatchNorm({.features = 2, .track_running_stats = false})),
      Error);
}

TEST(FoldBatchNorm, OfTheGoldenCnnComputesTheSameAndLeavesTheOriginal) {  // CASES BN-21
  for (const Dtype dtype : {Dtype::F64, Dtype::F32}) {
    for (const char* spec : {"batch", "batch(affine=false)", "batch(bias=false, eps=0.01)"}) {
      GoldenCnn model({.norm = NormSpec::parse(spec)});
      model.initialize(3);
      model.to(dtype);
      scramble(model);
      const Tensor x = noise({4, 8, 8, 1}, "x").detached_copy(dtype);
      const auto before = numbers(model);
      const auto folded = fold_batch_norm(model, x);
      EXPECT_EQ(numbers(model), before);
      EXPECT_EQ(model.mode(), Mode::Train);
      model.eval();
      const Tensor other = noise({2, 8, 8, 1}, "other").detached_copy(dtype);
      expect_values((*folded)(other), values(model(other)), dtype == Dtype::F64 ? 1e-12 : 1e-5);
      EXPECT_EQ(folded->mode(), Mode::Frozen);
      EXPECT_FALSE(folded->conv1.weight.requires_grad());
      // What is left cannot pass for a training checkpoint.
      EXPECT_THAT(message_of([&] { model.load(folded->state()); }), HasSubstr("bn1.running_mean"));
      // The original trains on.
      model.train();
      (void)model(x);
      EXPECT_NE(numbers(model), before);
    }
  }
}

struct TwoMaps : Layer {
  struct Options {
    NormSpec norm = NormSpec::parse("batch");
    bool conv_bias = false;
  };
  explicit TwoMaps(Options options) : o(std::move(options)) {}
  Options o;
  Conv2d& conv = add<Conv2d>(
      "conv", {.in = 3, .out = 4, .kernel = 3, .stride = 2, .groups = 1, .bias = o.conv_bias});
  Layer& norm1 = add_norm("norm1", o.norm, 4);
  Linear& fc = add<Linear>("fc", {.in = 4, .out = 5});
  Layer& norm2 = add_norm("norm2", o.norm, 5);
  Tensor forward(const Tensor& x) override {
    return norm2(fc(global_avg_pool2d(relu(norm1(conv(x))))));
  }
};

TEST(FoldBatchNorm, GivesABiasToMapsWithoutOneAndFoldsLinearMaps) {
  TwoMaps model({}), into({.norm = NormSpec(), .conv_bias = true});
  model.initialize(1);
  model.to(Dtype::F64);
  into.to(Dtype::F64);
  scramble(model);
  model.eval();
  const Tensor x = noise({3, 7, 7, 3}, "x");
  fold_batch_norm(model, into, x);
  expect_values(into(x), values(model(x)), 1e-13);
  TwoMaps same({.norm = NormSpec()});  // has no place for the bias
  EXPECT_THAT(message_of([&] { fold_batch_norm(model, same, x); }),
              HasSubstr("unexpected: conv.bias"));
  EXPECT_THAT(message_of([&] { (void)fold_batch_norm(model, x); }),
              HasSubstr("unexpected: conv.bias"));
  model.train();
  EXPECT_THAT(message_of([&] { fold_batch_norm(model, into, x); }), HasSubstr("eval mode"));
}

struct Awkward : Layer {
  struct Options {
    NormSpec norm = NormSpec::parse("batch");
    int way = 0;
  };
  explicit Awkward(Options options) : o(std::move(options)) {}
  Options o;
  Linear& fc = add<Linear>("fc", {.in = 4, .out = 4});
  Layer& norm = add_norm("norm", o.norm, 4);
  Layer& other = add_norm("other", o.norm, 4);
  Tensor forward(const Tensor& x) override {
    switch (o.way) {
      case 0:
        return norm(other(x));
      case 1:
        return other(fc(relu(norm(fc(x)))));
      case 2: {
        const Tensor h = fc(x);
        return h + norm(h);
      }
      default:
        return norm(norm(fc(x)));
    }
  }
};

TEST(FoldBatchNorm, RefusesEverythingItCannotFoldInOneMessage) {
  const Tensor x = noise({3, 4}, "x").detached_copy(Dtype::F32);
  const auto message = [&](int way, const char* norm = "batch") {
    Awkward model({.norm = NormSpec::parse(norm), .way = way});
    model.initialize(1);
    scramble(model);
    return message_of([&] { (void)fold_batch_norm(model, x); });
  };
  EXPECT_THAT(message(0), AllOf(HasSubstr("'norm' its input is not the output of a Conv2d"),
                                HasSubstr("'other' its input is not")));
  EXPECT_THAT(message(1), AllOf(HasSubstr("'norm' 'fc' is used more than once"),
                                HasSubstr("'other' 'fc' is used more than once")));
  EXPECT_THAT(message(2), HasSubstr("'other' was not called"));
  EXPECT_THAT(message(3), HasSubstr("'norm' is used more than once"));
  EXPECT_THAT(message(0, "batch(track=false)"), HasSubstr("'norm' has no running statistics"));
}

struct Shared : Layer {
  struct Options {
    NormSpec norm = NormSpec::parse("batch");
  };
  explicit Shared(Options options) : o(std::move(options)) {}
  Options o;
  Linear& fc = add<Linear>("fc", {.in = 4, .out = 4});
  Layer& norm = add_norm("norm", o.norm, 4);
  Tensor forward(const Tensor& x) override {
    const Tensor h = fc(x);
    return h + norm(h);
  }
};

TEST(FoldBatchNorm, NoticesThatTheMapIsReadBesidesItsNorm) {
  Shared model({});
  model.initialize(1);
  scramble(model);
  const Tensor x = noise({3, 4}, "x").detached_copy(Dtype::F32);
  EXPECT_THAT(message_of([&] { (void)fold_batch_norm(model, x); }), HasSubstr("outputs differ by"));
}

/// One map under two norms, with small outputs.
struct TwoNorms : Layer {
  struct Options {
    bool norms = true;
  };
  explicit TwoNorms(const Options& options) : o(options) {}
  const Options o;
  Linear& map = add<Linear>("map", {.in = 2, .out = 2});
  BatchNorm& a = add<BatchNorm>("a", {.features = 2});
  BatchNorm& b = add<BatchNorm>("b", {.features = 2});
  Tensor forward(const Tensor& x) override {
    const Tensor h = map(x);
    return a(h) * 1e-4 + b(h) * 1e-4;
  }
};

TEST(FoldBatchNorm, RefusesAMapUnderTwoNormsAndAModelWithoutParameters) {
  TwoNorms model({}), into({});
  model.initialize(1);
  scramble(model);
  model.eval();
  const Tensor x = noise({3, 2}, "x").detached_copy(Dtype::F32);
  EXPECT_THAT(message_of([&] { fold_batch_norm(model, into, x); }), HasSubstr("'b' reads 'map'"));
  Sequential bare, bare_into;
  bare.add<BatchNorm>("norm", {.features = 2, .affine = false});
  bare.eval();
  EXPECT_THAT(message_of([&] { fold_batch_norm(bare, bare_into, x); }), HasSubstr("'norm'"));
}

TEST(FoldBatchNorm, WorksOnSequentialModels) {
  Sequential model, into;
  model.add<Conv2d>("conv", {.in = 2, .out = 3, .kernel = 3, .bias = false});
  model.add<BatchNorm>("norm", {.features = 3});
  model.add<ReluLayer>("act", {});
  into.add<Conv2d>("conv", {.in = 2, .out = 3, .kernel = 3});
  into.add<ReluLayer>("act", {});
  model.initialize(1);
  scramble(model);
  model.eval();
  const Tensor x = noise({2, 5, 5, 2}, "x").detached_copy(Dtype::F32);
  fold_batch_norm(model, into, x);
  expect_values(into(x), values(model(x)), 1e-6);
}

// --- Pre-LayerNorm to Pre-RMSNorm ---------------------------------------------------------------

Decoder::Options small_gpt() {
  return Decoder::gpt2({.vocab = 11, .context = 7, .dim = 12, .layers = 3, .heads = 3});
}

Tensor some_ids() { return Tensor::of({2, 6}, {1, 5, 10, 3, 3, 0, 7, 2, 9, 9, 4, 8}, Dtype::I64); }

/// How far the conversion's logits are from the original's, relative to the largest.
double error_of(const Decoder::Options& options, Dtype dtype = Dtype::F64) {
  Decoder decoder(options);
  decoder.initialize(5);
  decoder.to(dtype);
  scramble(decoder);
  const auto before = numbers(decoder);
  const auto converted = to_pre_rms_norm(decoder);
  EXPECT_EQ(numbers(decoder), before);
  EXPECT_EQ(converted->o.norm.name(), "rms");
  converted->visit([](Module& m) { EXPECT_EQ(m.describe().find("LayerNorm"), std::string::npos); });
  decoder.eval();
  converted->eval();
  const std::vector<double> a = values(decoder(some_ids())), b = values((*converted)(some_ids()));
  double largest = 0, error = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i]));
    error = std::max(error, std::abs(a[i] - b[i]));
  }
  EXPECT_GT(largest, 0.1);
  return error / largest;
}

TEST(ToPreRmsNorm, ComputesTheSameLogits) {
  EXPECT_LT(error_of(small_gpt()), 1e-13);
  EXPECT_LT(error_of(small_gpt(), Dtype::F32), 2e-5);
  for (const char* norm : {"layer(bias=false)", "layer(affine=false)", "layer(eps=0.01)"}) {
    Decoder::Options o = small_gpt();
    o.norm = NormSpec::parse(norm);
    EXPECT_LT(error_of(o), 1e-13) << norm;
  }
}

TEST(ToPreRmsNorm, OfOtherFamiliesGatesAndPositions) {
  Decoder::Options llama =
      Decoder::llama({.vocab = 11, .context = 7, .dim = 12, .layers = 2, .heads = 3});
  llama.norm = NormSpec::parse("layer");
  EXPECT_LT(error_of(llama), 1e-13);
  llama.kv_heads = 1;
  llama.qk_norm = NormSpec::parse("rms");
  llama.tied = true;
  EXPECT_LT(error_of(llama), 1e-13);
  Decoder::Options plain = small_gpt();
  plain.family = Family::Plain;
  plain.gate = Gate::parse("rezero(init=0.7)");
  plain.dropout = 0.1;  // equal in eval mode
  EXPECT_LT(error_of(plain), 1e-13);
}

TEST(ToPreRmsNorm, LeavesBiasesOutWhereNothingNeedsThem) {
  Decoder::Options o = small_gpt();
  o.bias = false;
  o.norm = NormSpec::parse("layer(bias=false)");
  Decoder decoder(o);
  decoder.initialize(1);
  const auto converted = to_pre_rms_norm(decoder);
  EXPECT_FALSE(converted->o.bias);
  EXPECT_FALSE(converted->o.head_bias);
  for (const Parameter& p : converted->parameters()) EXPECT_FALSE(p.name.ends_with("bias"));
}

TEST(ToPreRmsNorm, TheStreamHasNoMean) {
  Decoder decoder(small_gpt());
  decoder.initialize(5);
  decoder.to(Dtype::F64);
  scramble(decoder);
  State hidden;
  (void)(*to_pre_rms_norm(decoder))(some_ids(), {.hidden = &hidden});
  for (const auto& [name, x] : hidden) {
    if (name == "final_norm") continue;
    const std::vector<double> v = values(x);
    for (std::size_t row = 0; row < v.size() / 12; ++row) {
      double sum = 0;
      for (std::size_t i = 0; i < 12; ++i) sum += v[row * 12 + i];
      EXPECT_NEAR(sum, 0, 1e-13) << name;
    }
  }
}

TEST(ToPreRmsNorm, RefusesOtherDecodersWithTheReason) {
  const auto message = [](const std::function<void(Decoder::Options&)>& change) {
    Decoder::Options o = small_gpt();
    change(o);
    Decoder decoder(o);
    decoder.initialize(1);
    return message_of([&] { (void)to_pre_rms_norm(decoder); });
  };
  using O = Decoder::Options;
  EXPECT_THAT(message([](O& o) { o.placement = Placement::parse("post"); }),
              HasSubstr("needs placement pre, where the stream is a sum; got post"));
  EXPECT_THAT(message([](O& o) { o.norm = NormSpec::parse("rms"); }),
              HasSubstr("needs layer norms over positions; got rms"));
  EXPECT_THAT(message([](O& o) { o.norm = NormSpec::parse("layer(over=sample)"); }),
              HasSubstr("got layer(over=sample)"));
  EXPECT_THAT(message([](O& o) { o.embed_norm = true; }), HasSubstr("brings back a mean"));
  EXPECT_THAT(message([](O& o) { o.normformer = true; }), HasSubstr("brings back a mean"));
  EXPECT_THAT(message([](O& o) { o.gate = Gate::parse("layerscale"); }), HasSubstr("gate per"));
}

}  // namespace
}  // namespace steady
