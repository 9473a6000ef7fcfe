#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <steadygrad/core/data/glyphs.hpp>
#include <steadygrad/core/gradcheck.hpp>
#include <steadygrad/core/io/run_record.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/loss.hpp>
#include <steadygrad/core/ops/pool.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/core/state_update.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/attention.hpp>
#include <steadygrad/layers/conv2d.hpp>
#include <steadygrad/layers/decoder.hpp>
#include <steadygrad/layers/dropout.hpp>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <steadygrad/layers/probe.hpp>
#include <steadygrad/layers/probe_log.hpp>
#include <steadygrad/optim/sgd.hpp>

#include "tests/core/data/files.hpp"
#include "tests/support/message_of.hpp"

namespace steady {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::message_of;

/// Two linear layers around a norm, the second one run twice.
struct Mlp : Layer {
  struct Options {
    std::string norm = "layer";
  };
  explicit Mlp(Options options) : o(std::move(options)) {}
  Options o;
  Linear& up = add<Linear>("up", {.in = 6, .out = 8});
  Layer& norm = add_norm("norm", NormSpec::parse(o.norm), 8);
  Linear& mix = add<Linear>("mix", {.in = 8, .out = 8});
  Linear& head = add<Linear>("head", {.in = 8, .out = 3});
  Tensor forward(const Tensor& x) override { return head(relu(mix(relu(mix(norm(up(x))))))); }
};

struct Cnn : Layer {
  struct Options {};
  explicit Cnn(Options options) : o(options) {}
  Options o;
  Conv2d& conv1 = add<Conv2d>("conv1", {.in = 1, .out = 4, .padding = 1, .bias = false});
  Layer& norm1 = add_norm("norm1", NormSpec::parse("batch"), 4);
  Conv2d& conv2 = add<Conv2d>("conv2", {.in = 4, .out = 8, .padding = 1});
  Layer& norm2 = add_norm("norm2", NormSpec::parse("rms"), 8);
  Dropout& drop = add<Dropout>("drop", {.p = 0.2});
  Linear& head = add<Linear>("head", {.in = 8, .out = 10});
  Tensor forward(const Tensor& x) override {
    Tensor h = max_pool2d(relu(norm1(conv1(x))), 4);
    return head(drop(global_avg_pool2d(relu(norm2(conv2(h))))));
  }
};

Tensor noise(const Shape& shape, std::string_view name) {
  Random random(5, name);
  Tensor t = Tensor::empty(shape);
  for (float& v : t.mutable_data<float>()) v = static_cast<float>(random.normal());
  return t;
}

Tensor labels() { return Tensor::of({4}, {0, 2, 1, 2}, Dtype::I64); }

std::vector<float> numbers(const Tensor& t) {
  return {t.data<float>().begin(), t.data<float>().end()};
}

void expect_same(const TensorStats& a, const TensorStats& b) {
  EXPECT_EQ(a.count, b.count);
  EXPECT_EQ(a.mean, b.mean);
  EXPECT_EQ(a.std, b.std);
  EXPECT_EQ(a.rms, b.rms);
  EXPECT_EQ(a.max_abs, b.max_abs);
  EXPECT_EQ(a.zeros, b.zeros);
  EXPECT_EQ(a.histogram, b.histogram);
}

/// One training step; the loss.
template <class Model>
double train_step(Model& model, Sgd& optimizer, const Tensor& x, const Tensor& y) {
  Tape tape;
  const Tensor loss = cross_entropy(model(x), y);
  optimizer.step(tape.backward(loss));
  return loss.item();
}

// --- it changes nothing ------------------------------------------------------------------------

/// Losses of a training, then all parameters and buffers.
template <class Model>
std::vector<float> trace(typename Model::Options options, const Tensor& x, const Tensor& y,
                         bool probed, std::int64_t every) {
  Model model(options);
  model.initialize(3);
  Sgd optimizer(model.parameters(), {.lr = 0.05, .momentum = 0.9});
  std::optional<Probe> probe;
  if (probed) probe.emplace(model, ProbeOptions{.every = every});
  std::vector<float> result;
  for (int step = 0; step < 12; ++step) {
    result.push_back(static_cast<float>(train_step(model, optimizer, x, y)));
    if (step % 5 == 4) {
      model.eval();
      result.push_back(numbers(model(x)).front());
      model.train();
    }
  }
  for (const NamedTensor& entry : model.state()) {
    const Tensor value = entry.value.detached_copy(Dtype::F32);
    for (const float v : value.data<float>()) result.push_back(v);
  }
  if (probed) {
    probe->finish();
    EXPECT_EQ(probe->next_step(), 12);
    EXPECT_EQ(std::ssize(probe->steps()), (12 + every - 1) / every);
  }
  return result;
}

TEST(Probe, ACnnTrainsToTheSameBits) {
  const Dataset data = make_glyphs({.train = 16, .test = 1}).train;
  const auto without = trace<Cnn>({}, data.x, data.y, false, 1);
  EXPECT_EQ(trace<Cnn>({}, data.x, data.y, true, 1), without);
  EXPECT_EQ(trace<Cnn>({}, data.x, data.y, true, 5), without);
}

TEST(Probe, AnMlpTrainsToTheSameBits) {
  for (const char* norm : {"none", "layer", "rms", "batch"}) {
    const auto without = trace<Mlp>({norm}, noise({4, 6}, "x"), labels(), false, 1);
    EXPECT_EQ(trace<Mlp>({norm}, noise({4, 6}, "x"), labels(), true, 1), without) << norm;
  }
}

// --- what it sees ------------------------------------------------------------------------------

TEST(Probe, SamplesAreTheStatisticsOfWhatFlows) {
  Mlp model({});
  model.initialize(1);
  Sgd optimizer(model.parameters(), {.lr = 0.1});
  const Tensor x = noise({4, 6}, "x");
  const State before = [&] {
    State copy = model.state();
    for (NamedTensor& entry : copy) entry.value = entry.value.detached_copy();
    return copy;
  }();

  // By hand, with the same layers.
  Tape tape;
  const Tensor up = model.up(x);
  const Tensor norm = model.norm(up);
  const Tensor mix0 = model.mix(norm);
  const Tensor mix1 = model.mix(relu(mix0));
  const Tensor logits = model.head(relu(mix1));
  TensorStats gradient_of_mix0;
  TensorStats gradient_of_up;
  tape.on_gradient(mix0, [&](const Tensor& g) { gradient_of_mix0 = tensor_stats(g); });
  tape.on_gradient(up, [&](const Tensor& g) { gradient_of_up = tensor_stats(g); });
  const Gradients by_hand = tape.backward(cross_entropy(logits, labels()));

  Probe probe(model, {.every = 1});
  train_step(model, optimizer, x, labels());
  probe.finish();
  ASSERT_EQ(probe.steps().size(), 1U);
  const ProbeStep& step = probe.steps()[0];
  EXPECT_EQ(step.step, 0);
  const auto sample = [&](std::string_view path, Observed what, int call = 0) {
    const ProbeSample* found = step.find(path, what, call);
    EXPECT_NE(found, nullptr) << path << " " << to_string(what) << " " << call;
    return found == nullptr ? TensorStats{} : found->stats;
  };
  expect_same(sample("", Observed::Input), tensor_stats(x));
  expect_same(sample("", Observed::Output), tensor_stats(logits));
  expect_same(sample("up", Observed::Output), tensor_stats(up));
  expect_same(sample("norm", Observed::Input), tensor_stats(up));
  expect_same(sample("mix", Observed::Output, 0), tensor_stats(mix0));
  expect_same(sample("mix", Observed::Output, 1), tensor_stats(mix1));
  expect_same(sample("mix", Observed::Input, 1), tensor_stats(relu(mix0)));
  expect_same(sample("mix", Observed::OutputGradient, 0), gradient_of_mix0);
  expect_same(sample("up", Observed::OutputGradient), gradient_of_up);
  EXPECT_EQ(step.find("mix", Observed::Output, 2), nullptr);
  for (const Parameter& p : model.parameters()) {
    SCOPED_TRACE(p.name);
    const Tensor old = find(before, p.name);
    expect_same(sample(p.name, Observed::Parameter), tensor_stats(old));
    expect_same(sample(p.name, Observed::ParameterGradient), tensor_stats(by_hand[p.value]));
    const TensorStats update = difference_stats(p.value, old);
    expect_same(sample(p.name, Observed::Update), update);
    const double rms = tensor_stats(old).rms;
    const std::optional<double> ratio = step.measure(p.name, "update_ratio");
    ASSERT_TRUE(ratio.has_value());
    if (rms > 0) {
      EXPECT_EQ(*ratio, update.rms / rms);
    } else {
      EXPECT_TRUE(std::isnan(*ratio));
    }
  }
}

TEST(Probe, CosineBetweenConsecutiveSampledGradients) {
  Mlp model({});
  model.initialize(1);
  Sgd optimizer(model.parameters(), {.lr = 0.3});
  Probe probe(model, {.every = 2});
  std::vector<Tensor> sampled;
  for (int i = 0; i < 5; ++i) {
    Tape tape;
    const Tensor loss = cross_entropy(model(noise({4, 6}, "x" + std::to_string(i))), labels());
    const Gradients g = tape.backward(loss);
    if (i % 2 == 0) sampled.push_back(g[model.up.weight].detached_copy());
    optimizer.step(g);
  }
  probe.finish();
  ASSERT_EQ(probe.steps().size(), 3U);
  EXPECT_EQ(probe.steps()[1].step, 2);
  EXPECT_FALSE(probe.steps()[0].measure("up.weight", "gradient_cosine").has_value());
  for (std::size_t i = 1; i < 3; ++i) {
    EXPECT_EQ(probe.steps()[i].measure("up.weight", "gradient_cosine"),
              cosine(sampled[i - 1], sampled[i]));
  }
}

/// Moments of the elements in double, from their definition.
struct Moments4 {
  double mean = 0, std = 0, skewness = 0, kurtosis = 0;
  explicit Moments4(const std::vector<double>& v) {
    const auto n = static_cast<double>(v.size());
    mean = std::accumulate(v.begin(), v.end(), 0.0) / n;
    double m2 = 0;
    for (const double x : v) {
      const double d = x - mean;
      m2 += d * d / n;
      skewness += d * d * d / n;
      kurtosis += d * d * d * d / n;
    }
    std = std::sqrt(m2);
    skewness /= m2 * std;
    kurtosis /= m2 * m2;
  }
};

void expect_moments(const ProbeStep& step, const std::vector<double>& normalized) {
  const Moments4 want(normalized);
  const double tolerance = 1e-5;  // float32 values of order one
  EXPECT_NEAR(*step.measure("norm", "normalized_mean"), want.mean, tolerance);
  EXPECT_NEAR(*step.measure("norm", "normalized_std"), want.std, tolerance);
  EXPECT_NEAR(*step.measure("norm", "normalized_skewness"), want.skewness, tolerance);
  EXPECT_NEAR(*step.measure("norm", "normalized_kurtosis"), want.kurtosis, 10 * tolerance);
}

/// A step of an Mlp with that norm on 4 rows of 8 features; x: what went into the norm.
ProbeStep norm_step(Mlp& model, Tensor& x) {
  model.initialize(2);
  Sgd optimizer(model.parameters(), {.lr = 0.1});
  const Tensor input = noise({4, 6}, "x");
  x = model.up(input).detached_copy(Dtype::F64);
  Probe probe(model, {.every = 1});
  train_step(model, optimizer, input, labels());
  probe.finish();
  return probe.steps().at(0);
}

TEST(Probe, RowNormsGiveRstdAndMomentsOfTheNormalizedValue) {
  for (const bool centred : {true, false}) {
    Mlp model({centred ? "layer" : "rms"});
    Tensor x;
    const ProbeStep step = norm_step(model, x);
    std::vector<double> normalized;
    double low = 1e300;
    double high = 0;
    for (std::size_t r = 0; r < 4; ++r) {
      const auto row = x.data<double>().subspan(8 * r, 8);
      const double mean = centred ? std::accumulate(row.begin(), row.end(), 0.0) / 8 : 0.0;
      double var = 0;
      for (const double v : row) var += (v - mean) * (v - mean) / 8;
      const double rstd = 1 / std::sqrt(var + (centred ? 1e-5 : 1e-6));
      low = std::min(low, rstd);
      high = std::max(high, rstd);
      for (const double v : row) normalized.push_back((v - mean) * rstd);
    }
    EXPECT_NEAR(*step.measure("norm", "rstd_min"), low, 1e-5 * low);
    EXPECT_NEAR(*step.measure("norm", "rstd_max"), high, 1e-5 * high);
    expect_moments(step, normalized);
  }
}

TEST(Probe, BatchNormAlsoGivesTheBatchAgainstTheRunningStatistics) {
  Mlp model({"batch"});
  Tensor x;
  const ProbeStep step = norm_step(model, x);
  std::vector<double> normalized(32);
  double low = 1e300;
  double high = 0;
  double gap = 0;
  double ratio_low = 1e300;
  double ratio_high = 0;
  for (std::size_t c = 0; c < 8; ++c) {
    double mean = 0;
    double m2 = 0;
    for (std::size_t r = 0; r < 4; ++r) mean += x.data<double>()[8 * r + c] / 4;
    for (std::size_t r = 0; r < 4; ++r) m2 += std::pow(x.data<double>()[8 * r + c] - mean, 2);
    const double rstd = 1 / std::sqrt(m2 / 4 + 1e-5);
    low = std::min(low, rstd);
    high = std::max(high, rstd);
    for (std::size_t r = 0; r < 4; ++r) {
      normalized[8 * r + c] = (x.data<double>()[8 * r + c] - mean) * rstd;
    }
    // After one update with momentum 0.1 from mean 0 and variance 1.
    const double running_var = 0.9 + 0.1 * m2 / 3 + 1e-5;
    gap += std::pow(mean - 0.1 * mean, 2) / running_var / 8;
    ratio_low = std::min(ratio_low, (m2 / 3 + 1e-5) / running_var);
    ratio_high = std::max(ratio_high, (m2 / 3 + 1e-5) / running_var);
  }
  EXPECT_NEAR(*step.measure("norm", "rstd_min"), low, 1e-5 * low);
  EXPECT_NEAR(*step.measure("norm", "rstd_max"), high, 1e-5 * high);
  EXPECT_NEAR(*step.measure("norm", "running_mean_gap"), std::sqrt(gap), 1e-5);
  EXPECT_NEAR(*step.measure("norm", "running_var_ratio_min"), ratio_low, 1e-5);
  EXPECT_NEAR(*step.measure("norm", "running_var_ratio_max"), ratio_high, 1e-5);
  expect_moments(step, normalized);
}

TEST(Probe, ALayerNamesMeasuresOfItsOwn) {
  struct Own : Layer {
    struct Options {};
    explicit Own(Options) {}
    Tensor forward(const Tensor& x) override { return x; }
    void measure(const Tensor& x, const MeasureSink& sink) const override {
      EXPECT_FALSE(recording());
      EXPECT_FALSE(state_updates());
      sink("entropy", static_cast<double>(x.numel()));
    }
  };
  Own model({});
  Probe probe(model, {.every = 1});
  const Tape tape;
  (void)model(Tensor::zeros({5}));
  probe.finish();
  EXPECT_EQ(probe.steps().at(0).measure("", "entropy"), 5.0);
}

TEST(Probe, AttentionGivesItsLargestLogitAndMeanEntropy) {
  Attention model({.dim = 8, .heads = 2, .kv_heads = 1, .causal = true});
  model.initialize(1);
  const Tensor x = noise({2, 3, 8}, "x");
  const Tensor mask = Tensor::of({2, 3}, {1, 1, 1, 0, 1, 1}, Dtype::I64);
  std::map<std::string, Tensor> weights;
  for (const NamedTensor& t : model.state()) weights[t.name] = t.value.detached_copy(Dtype::F64);
  const Tensor wide = x.detached_copy(Dtype::F64);
  const auto project = [&](const std::string& name, std::size_t token, std::size_t row) {
    double sum = weights[name + ".bias"].data<double>()[row];
    for (std::size_t i = 0; i < 8; ++i) {
      sum += weights[name + ".weight"].data<double>()[8 * row + i] *
             wide.data<double>()[8 * token + i];
    }
    return sum;
  };
  double largest = -1e300;
  double entropy = 0;
  int queries = 0;
  for (std::size_t b = 0; b < 2; ++b) {
    for (std::size_t head = 0; head < 2; ++head) {
      for (std::size_t i = 0; i < 3; ++i) {
        std::vector<double> scores;
        for (std::size_t j = 0; j <= i; ++j) {
          if (mask.data<std::int64_t>()[3 * b + j] == 0) continue;
          double dot = 0;
          for (std::size_t d = 0; d < 4; ++d) {
            dot += project("q_proj", 3 * b + i, 4 * head + d) * project("k_proj", 3 * b + j, d);
          }
          scores.push_back(dot / 2);
        }
        if (scores.empty()) continue;
        ++queries;
        double total = 0;
        for (const double s : scores) total += std::exp(s);
        for (const double s : scores) {
          largest = std::max(largest, s);
          entropy -= std::exp(s) / total * std::log(std::exp(s) / total);
        }
      }
    }
  }
  ASSERT_EQ(queries, 10);  // the first token of the second text sees nothing
  Probe probe(model, {.every = 1});
  {
    const Tape tape;
    (void)model(x, {.mask = mask});
  }
  probe.finish();
  EXPECT_NEAR(*probe.steps().at(0).measure("", "logit_max"), largest, 1e-5);
  EXPECT_NEAR(*probe.steps().at(0).measure("", "entropy_mean"), entropy / queries, 1e-5);
}

TEST(Probe, ATransformerTrainsToTheSameBits) {
  const auto train = [](bool probed) {
    Decoder model({.vocab = 11, .context = 6, .dim = 8, .layers = 2, .heads = 2});
    model.initialize(1);
    Sgd optimizer(model.parameters(), {.lr = 0.1});
    std::optional<Probe> probe;
    if (probed) probe.emplace(model, ProbeOptions{.every = 2});
    const Tensor ids = Tensor::of({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}, Dtype::I64);
    std::vector<float> result;
    for (int i = 0; i < 5; ++i) {
      Tape tape;
      const Tensor loss = model.loss(ids, ids);
      optimizer.step(tape.backward(loss));
      result.push_back(static_cast<float>(loss.item()));
    }
    for (const Parameter& p : model.parameters()) {
      const std::vector<float> values = numbers(p.value);
      result.insert(result.end(), values.begin(), values.end());
    }
    if (probed) {
      probe->finish();
      int entropies = 0;
      for (const ProbeMeasure& m : probe->steps().at(0).measures) {
        entropies += m.name == "entropy_mean" ? 1 : 0;
      }
      EXPECT_EQ(entropies, 2);
    }
    return result;
  };
  EXPECT_EQ(train(true), train(false));
}

TEST(Probe, ATiedParameterIsSeenOnceUnderItsFirstName) {
  struct Tied : Layer {
    struct Options {};
    explicit Tied(Options) { second.weight = first.weight; }
    Linear& first = add<Linear>("first", {.in = 6, .out = 6});
    Linear& second = add<Linear>("second", {.in = 6, .out = 6});
    Tensor forward(const Tensor& x) override { return second(relu(first(x))); }
  };
  Tied model({});
  model.initialize(1);
  Probe probe(model, {.every = 1});
  Tape tape;
  const Gradients g = tape.backward(sum(model(noise({4, 6}, "x"))));
  probe.finish();
  const ProbeStep& step = probe.steps().at(0);
  expect_same(step.find("first.weight", Observed::ParameterGradient)->stats,
              tensor_stats(g[model.first.weight]));
  EXPECT_EQ(step.find("second.weight", Observed::ParameterGradient), nullptr);
}

TEST(Probe, SaysHowMuchIsNotFinite) {
  Mlp model({"none"});
  model.initialize(1);
  Probe probe(model, {.every = 1});
  Tensor x = noise({4, 6}, "x");
  x.mutable_data<float>()[0] = std::numeric_limits<float>::infinity();
  {
    Tape tape;
    (void)model(x);  // diverged: no backward
  }
  probe.finish();
  const ProbeStep& step = probe.steps().at(0);
  EXPECT_DOUBLE_EQ(step.find("up", Observed::Input)->stats.non_finite, 1.0 / 24);
  EXPECT_DOUBLE_EQ(step.find("up", Observed::Output)->stats.non_finite, 0.25);
  EXPECT_EQ(step.find("up", Observed::OutputGradient), nullptr);
  EXPECT_EQ(step.find("up.weight", Observed::Update), nullptr);
  EXPECT_NE(step.find("up.weight", Observed::Parameter), nullptr);
}

TEST(Probe, AForwardThatThrowsLeavesWhatItCameTo) {
  Mlp model({"batch"});
  model.initialize(1);
  Probe probe(model, {.every = 1});
  Tensor x = noise({4, 6}, "x");
  x.mutable_data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(
      {
        const Tape tape;
        (void)model(x);
      },
      NonFiniteError);
  {
    const Tape tape;
    (void)model(noise({4, 6}, "x"));
  }
  probe.finish();
  ASSERT_EQ(probe.steps().size(), 2U);
  EXPECT_NE(probe.steps()[0].find("up", Observed::Output), nullptr);
  EXPECT_EQ(probe.steps()[0].find("norm", Observed::Output), nullptr);
  EXPECT_NE(probe.steps()[1].find("head", Observed::Output), nullptr);
}

// --- what is a step ----------------------------------------------------------------------------

TEST(Probe, OnlyForwardsThatTrainAreSteps) {
  Mlp model({"batch"});
  model.initialize(1);
  const Tensor x = noise({4, 6}, "x");
  Probe probe(model, {.every = 1});
  (void)model(x);  // no tape
  {
    const Tape tape;
    (void)model.up(x);  // not the model
    const NoRecord no_record;
    (void)model(x);
  }
  {
    const Tape tape;
    const NoStateUpdate no_update;
    (void)model(x);
  }
  model.eval();
  {
    const Tape tape;
    (void)model(x);
  }
  model.train();
  probe.finish();
  EXPECT_EQ(probe.next_step(), 0);
  EXPECT_THAT(probe.steps(), IsEmpty());

  Probe asked(model, {.every = 1, .first_step = 100, .evaluation = true});
  (void)model(x);
  asked.finish();
  ASSERT_EQ(asked.steps().size(), 1U);
  EXPECT_EQ(asked.steps()[0].step, 100);
  EXPECT_NE(asked.steps()[0].find("head", Observed::Output), nullptr);
}

TEST(Probe, AnEvaluationInsideAStepDoesNotEndIt) {
  Mlp model({});
  model.initialize(1);
  Sgd optimizer(model.parameters(), {.lr = 0.1});
  const Tensor x = noise({4, 6}, "x");
  Probe probe(model, {.every = 1});
  Tape tape;
  const Tensor loss = cross_entropy(model(x), labels());
  {
    const NoRecord no_record;
    (void)model(x);
  }
  const Gradients g = tape.backward(loss);
  (void)model(x);
  optimizer.step(g);
  probe.finish();
  ASSERT_EQ(probe.steps().size(), 1U);
  EXPECT_GT(probe.steps()[0].find("up.weight", Observed::Update)->stats.rms, 0);
  EXPECT_EQ(probe.steps()[0].find("up", Observed::Output, 1), nullptr);
}

TEST(Probe, GradientChecksAreNotSeen) {
  Mlp model({});
  model.initialize(1);
  model.to(Dtype::F64);
  Probe probe(model, {.every = 1});
  const Tensor x = noise({2, 6}, "x").detached_copy(Dtype::F64).set_requires_grad();
  const auto f = [&](std::span<const Tensor> in) { return model(in[0]); };
  EXPECT_NO_THROW((void)gradcheck(f, {x}));
  probe.finish();
  EXPECT_EQ(probe.next_step(), 0);
}

TEST(Probe, ASecondBackwardIsNotTakenForTheGradient) {
  Mlp model({});
  model.initialize(1);
  const Tensor x = noise({4, 6}, "x");
  Probe probe(model, {.every = 1});
  Tape tape;
  const Tensor loss = cross_entropy(model(x), labels());
  const Gradients first = tape.backward(loss, {.record = true});
  const Tensor penalty = sum(mul(first[model.up.weight], first[model.up.weight]));
  const Gradients second = tape.backward(penalty);
  probe.finish();
  const ProbeStep& step = probe.steps().at(0);
  expect_same(step.find("up.weight", Observed::ParameterGradient)->stats,
              tensor_stats(first[model.up.weight]));
  EXPECT_NE(tensor_stats(second[model.up.weight]).rms, tensor_stats(first[model.up.weight]).rms);
  int gradients = 0;
  for (const ProbeSample& s : step.samples) {
    gradients += s.path == "norm" && s.what == Observed::OutputGradient ? 1 : 0;
  }
  EXPECT_EQ(gradients, 1);
}

TEST(Probe, CallsUnderAnInnerTapeAreNotPartOfTheStep) {
  struct Sum : Layer {
    struct Options {};
    explicit Sum(Options) {}
    Linear& part = add<Linear>("part", {.in = 6, .out = 6});
    Tensor forward(const Tensor& x) override {
      {
        Tape tape;
        (void)tape.backward(sum(part(x.detach())));
      }
      return part(x);
    }
  };
  Sum model({});
  model.initialize(1);
  Probe probe(model, {.every = 1});
  Tape tape;
  const Tensor loss = sum(model(noise({4, 6}, "x")));
  const Gradients g = tape.backward(loss);
  probe.finish();
  const ProbeStep& step = probe.steps().at(0);
  EXPECT_NE(step.find("part", Observed::OutputGradient, 0), nullptr);
  EXPECT_EQ(step.find("part", Observed::Output, 1), nullptr);
  expect_same(step.find("part.weight", Observed::ParameterGradient)->stats,
              tensor_stats(g[model.part.weight]));
}

// --- attaching and detaching -------------------------------------------------------------------

TEST(Probe, PatternsChooseLayersAndTheirParameters) {
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("conv*,*.norm?", "layers.0.norm1"));
  EXPECT_TRUE(matches("a*c*e", "abcde"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_FALSE(matches("norm", "norm1"));
  EXPECT_FALSE(matches("norm?", "norm"));
  EXPECT_FALSE(matches("a*c", "abcd"));

  Mlp model({});
  model.initialize(1);
  Sgd optimizer(model.parameters(), {.lr = 0.1});
  Probe probe(model, {.paths = "no*,he?d", .every = 1});
  train_step(model, optimizer, noise({4, 6}, "x"), labels());
  probe.finish();
  std::vector<std::string> paths;
  for (const ProbeSample& s : probe.steps().at(0).samples) {
    if (std::ranges::find(paths, s.path) == paths.end()) paths.push_back(s.path);
  }
  EXPECT_THAT(paths, testing::UnorderedElementsAre("norm", "norm.weight", "norm.bias", "head",
                                                   "head.weight", "head.bias"));
}

TEST(Probe, RefusesAPatternWithoutLayersAndABadStride) {
  Mlp model({});
  EXPECT_EQ(message_of([&] { const Probe probe(model, {.paths = "norms"}); }),
            "Probe: no layer matches 'norms'; the layers are '', 'up', 'norm', 'mix', 'head'");
  EXPECT_EQ(message_of([&] { const Probe probe(model, {.every = 0}); }),
            "Probe: every must be >= 1; got 0");
}

TEST(Probe, IsGoneAfterItsDestructor) {
  Mlp model({});
  model.initialize(1);
  Sgd optimizer(model.parameters(), {.lr = 0.1});
  int steps = 0;
  {
    const Probe probe(model, {.every = 1}, [&](const ProbeStep&) { ++steps; });
    train_step(model, optimizer, noise({4, 6}, "x"), labels());
    EXPECT_EQ(steps, 0);
  }
  EXPECT_EQ(steps, 1);
  train_step(model, optimizer, noise({4, 6}, "x"), labels());
  EXPECT_EQ(steps, 1);
}

TEST(Probe, MayDieBetweenForwardAndBackward) {
  Mlp model({});
  model.initialize(1);
  Tape tape;
  Tensor loss;
  {
    const Probe probe(model, {.every = 1});
    loss = cross_entropy(model(noise({4, 6}, "x")), labels());
  }
  EXPECT_NO_THROW((void)tape.backward(loss));
}

TEST(Probe, MayOutliveTheModel) {
  auto model = std::make_unique<Mlp>(Mlp::Options{});
  model->initialize(1);
  auto optimizer = std::make_unique<Sgd>(model->parameters(), SgdOptions{.lr = 0.1});
  Probe probe(*model, {.every = 1});
  train_step(*model, *optimizer, noise({4, 6}, "x"), labels());
  optimizer.reset();
  model.reset();
  probe.finish();
  EXPECT_GT(probe.steps().at(0).find("up.weight", Observed::Update)->stats.rms, 0);
}

TEST(Probe, SeveralWatchOneModel) {
  Mlp model({});
  model.initialize(1);
  Sgd optimizer(model.parameters(), {.lr = 0.1});
  Probe all(model, {.every = 1});
  auto norms = std::make_unique<Probe>(model, ProbeOptions{.paths = "norm", .every = 2});
  for (int i = 0; i < 2; ++i) train_step(model, optimizer, noise({4, 6}, "x"), labels());
  norms->finish();
  EXPECT_EQ(norms->steps().size(), 1U);
  norms.reset();
  train_step(model, optimizer, noise({4, 6}, "x"), labels());
  all.finish();
  EXPECT_EQ(all.steps().size(), 3U);
}

TEST(Probe, WhatTheSinkThrowsLeavesFinish) {
  Mlp model({});
  model.initialize(1);
  Sgd optimizer(model.parameters(), {.lr = 0.1});
  Probe probe(model, {.every = 1}, [](const ProbeStep&) { throw IoError("disk full"); });
  train_step(model, optimizer, noise({4, 6}, "x"), labels());
  EXPECT_THROW(train_step(model, optimizer, noise({4, 6}, "x"), labels()), IoError);
  EXPECT_NO_THROW(probe.finish());  // that step was handed over and is gone
  train_step(model, optimizer, noise({4, 6}, "x"), labels());
  EXPECT_EQ(message_of([&] { probe.finish(); }), "disk full");
}

TEST(Probe, FollowsAModelIntoAnotherDtype) {
  Mlp model({});
  model.initialize(1);
  Probe probe(model, {.every = 1});
  for (const Dtype dtype : {Dtype::F32, Dtype::F64}) {
    model.to(dtype);
    Sgd optimizer(model.parameters(), {.lr = 0.1});
    train_step(model, optimizer, noise({4, 6}, "x").detached_copy(dtype), labels());
  }
  probe.finish();
  ASSERT_EQ(probe.steps().size(), 2U);
  EXPECT_NE(probe.steps()[1].find("up.weight", Observed::Update), nullptr);
}

// --- the log -----------------------------------------------------------------------------------

TEST(ProbeLog, PutsEverySampleIntoTheLog) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "run.h5";
  Mlp model({"batch"});
  model.initialize(1);
  Sgd optimizer(model.parameters(), {.lr = 0.1});
  std::vector<ProbeStep> seen;
  {
    RunLog log(path, {{"norm", "batch"}, {"seed", std::uint64_t{1}}});
    const ProbeSink to_log = log_probe(log);
    Probe probe(model, {.every = 2}, [&](const ProbeStep& step) {
      seen.push_back(step);
      to_log(step);
    });
    for (int i = 0; i < 5; ++i) train_step(model, optimizer, noise({4, 6}, "x"), labels());
    probe.finish();
    log.close();
  }
  const RunRecord record = read_run(path);
  ASSERT_EQ(seen.size(), 3U);
  std::size_t rows = 0;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const ProbeSample& output = *seen[i].find("mix", Observed::Output, 1);
    const RunSeries* series = record.find({"layers", "mix", "output#1"});
    ASSERT_NE(series, nullptr);
    EXPECT_EQ(series->step[i], seen[i].step);
    EXPECT_EQ(series->column("rms")[i], output.stats.rms);
    EXPECT_EQ(series->column("count")[i], 32);
    EXPECT_THAT(series->histogram_of(i), testing::ElementsAreArray(output.stats.histogram));
    EXPECT_EQ(record.find({"layers", "norm", "rstd_max"})->column("value")[i],
              seen[i].measure("norm", "rstd_max"));
    EXPECT_EQ(record.find({"parameters", "up.weight", "update_ratio"})->column("value")[i],
              seen[i].measure("up.weight", "update_ratio"));
    rows += seen[i].samples.size() + seen[i].measures.size();
  }
  for (const RunSeries& series : record.series) rows -= series.step.size();
  EXPECT_EQ(rows, 0U);
  EXPECT_NE(record.find({"layers", "", "output_gradient"}), nullptr);
}

}  // namespace
}  // namespace steady
