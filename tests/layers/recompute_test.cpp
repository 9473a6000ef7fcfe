#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/storage.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/activation.hpp>
#include <steadygrad/layers/decoder.hpp>
#include <steadygrad/layers/dropout.hpp>
#include <steadygrad/layers/layer_function.hpp>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <steadygrad/layers/recompute.hpp>
#include <steadygrad/optim/sgd.hpp>

#include "tests/layers/transformer_testing.hpp"
#include "tests/support/message_of.hpp"

namespace steady {
namespace {

using testing::HasSubstr;
using testing_support::message_of;
using transformer_testing::noise;
using transformer_testing::random_ids;

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.storage().bytes(), b.storage().bytes(),
                     static_cast<std::size_t>(a.numel() * size_of(a.dtype()))) == 0;
}

/// Batch statistics, random numbers and running values that a forward reads: a second forward that
/// saw any of them changed would give other gradients.
struct Block : Layer {
  struct Options {
    std::string norm = "renorm";
  };
  Block() : Block(Options{}) {}
  explicit Block(Options options) : o(std::move(options)) {}
  const Options o;
  Linear& up = add<Linear>("up", {.in = 4, .out = 8});
  Layer& norm = add_norm("norm", NormSpec::parse(o.norm), 8);
  Dropout& drop = add<Dropout>("drop", {.p = 0.3});
  Linear& down = add<Linear>("down", {.in = 8, .out = 4});
  Tensor forward(const Tensor& x) override { return x + down(drop(tanh(norm(up(x))))); }
};

struct Stack : Layer {
  struct Options {
    bool recompute = false;
    std::string norm = "renorm";
  };
  explicit Stack(Options options) : o(std::move(options)) {
    initialize(3);
    to(Dtype::F64);
  }
  const Options o;
  Block& a = add<Block>("a", {.norm = o.norm});
  Block& b = add<Block>("b", {.norm = o.norm});
  Tensor forward(const Tensor& x) override {
    return o.recompute ? recompute(b, recompute(a, x)) : b(a(x));
  }
};

/// Loss and gradients of a step, by name.
struct Step {
  double loss = 0.0;
  std::vector<std::pair<std::string, Tensor>> gradients;
};

Step step(Layer& model, const Tensor& x) {
  Tape tape;
  const Tensor y = model(x);
  const Tensor loss = sum(y * y * 0.5 + y);
  Gradients gradients = tape.backward(loss);
  Step result{loss.item(), {}};
  for (const Parameter& p : model.parameters()) {
    result.gradients.emplace_back(p.name, gradients[p.value].detached_copy());
  }
  if (x.requires_grad()) result.gradients.emplace_back("x", gradients[x].detached_copy());
  return result;
}

void expect_same(const Step& a, const Step& b) {
  EXPECT_EQ(a.loss, b.loss);
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (std::size_t i = 0; i < a.gradients.size(); ++i) {
    EXPECT_TRUE(same_bits(a.gradients[i].second, b.gradients[i].second)) << a.gradients[i].first;
  }
}

void expect_same_state(const Module& a, const Module& b) {
  const State sa = a.state(), sb = b.state();
  ASSERT_EQ(sa.size(), sb.size());
  for (std::size_t i = 0; i < sa.size(); ++i) {
    EXPECT_TRUE(same_bits(sa[i].value, sb[i].value)) << sa[i].name;
  }
}

TEST(Recompute, GivesTheBitsOfThePlainCallInEveryStep) {
  Stack plain({}), lean({.recompute = true});
  for (int i = 0; i < 4; ++i) {
    const Tensor x = noise({5, 4}, "x" + std::to_string(i)).set_requires_grad();
    expect_same(step(lean, x), step(plain, x));
    expect_same_state(lean, plain);
    for (Stack* model : {&plain, &lean}) {
      Tape tape;
      const Tensor y = (*model)(x);
      Sgd(model->parameters(), {.lr = 0.01}).step(tape.backward(sum(y * y)));
    }
  }
}

TEST(Recompute, SeesEvalAndFrozenLayersAsTheForwardDid) {
  const Tensor x = noise({5, 4}, "x").set_requires_grad();
  for (const bool frozen : {false, true}) {
    Stack plain({}), lean({.recompute = true});
    for (Stack* model : {&plain, &lean}) {
      (void)step(*model, x);
      if (frozen) {
        model->a.norm.freeze();
      } else {
        model->eval();
      }
    }
    const auto backward = [&](Stack& model) {
      Tape tape;
      const Tensor y = sum(square(model(x)));
      return Step{y.item(), {{"x", tape.backward(y)[x].detached_copy()}}};
    };
    expect_same(backward(lean), backward(plain));
    expect_same_state(lean, plain);
  }
}

TEST(Recompute, HoldsTheBlocksInputsAndOneBlockInside) {
  const auto peak = [](bool lean) {
    Decoder::Options o =
        Decoder::gpt2({.vocab = 16, .context = 64, .dim = 32, .layers = 8, .heads = 4});
    o.recompute = lean;
    Decoder model(o);
    model.initialize(1);
    const Tensor ids = random_ids({4, 64}, 16);
    const std::int64_t before = memory_stats().live;
    reset_peak_memory();
    Tape tape;
    (void)tape.backward(model.loss(ids, ids));
    return static_cast<double>(memory_stats().peak - before);
  };
  EXPECT_LT(peak(true), 0.5 * peak(false));
}

class RecomputedDecoder : public testing::TestWithParam<const char*> {};

TEST_P(RecomputedDecoder, GivesTheBitsOfThePlainOne) {
  std::vector<Step> steps;
  for (const bool lean : {false, true}) {
    Decoder::Options o =
        Decoder::llama({.vocab = 11, .context = 6, .dim = 8, .layers = 3, .heads = 2});
    o.placement = Placement::parse(GetParam());
    o.dropout = 0.2;
    o.recompute = lean;
    Decoder model(o);
    model.initialize(5);
    const Tensor ids = random_ids({2, 6}, 11);
    const Tensor mask = Tensor::ones({2, 6}, Dtype::I64);
    mask.storage().touch("test");
    reinterpret_cast<std::int64_t*>(mask.storage().bytes())[0] = 0;
    Tape tape;
    const Tensor loss = mean(square(model(ids, {.mask = mask})));
    const Gradients gradients = tape.backward(loss);
    Step s{loss.item(), {}};
    for (const Parameter& p : model.parameters()) {
      s.gradients.emplace_back(p.name, gradients[p.value].detached_copy());
    }
    steps.push_back(std::move(s));
  }
  expect_same(steps[1], steps[0]);
}

INSTANTIATE_TEST_SUITE_P(Placements, RecomputedDecoder,
                         testing::Values("pre", "post", "sandwich", "b2t", "resi_dual", "hybrid",
                                         "output"));

TEST(Recompute, PassesGradcheckAsAFunctionOfItsParameters) {
  struct Outer : Layer {
    Linear& inner = add<Linear>("inner", {.in = 3, .out = 3});
    Tensor forward(const Tensor& x) override { return recompute(inner, tanh(x)) * x; }
  } layer;
  layer.initialize(2);
  layer.to(Dtype::F64);
  const auto [f, inputs] = as_function(layer, noise({2, 3}, "x"));
  EXPECT_TRUE(gradcheck(f, inputs).ok);
}

/// Two inputs, two outputs; the first output is an input.
std::vector<Tensor> both(Layer& layer, std::span<const Tensor> in) {
  return {in[0], layer(in[0]) * in[1]};
}

TEST(Recompute, TellsInputsApartThatShareMemory) {
  Linear layer({.in = 3, .out = 3});
  layer.initialize(2);
  layer.to(Dtype::F64);
  const Tensor x = noise({2, 3}, "x").set_requires_grad();
  const auto gradient = [&](bool lean) {
    Tape tape;
    const std::array in{x, x};
    const std::vector<Tensor> y = lean ? recompute(layer, in, both) : both(layer, in);
    return tape.backward(sum(square(y[0]) * 3.0 + y[1]))[x].detached_copy();
  };
  const Tensor lean = gradient(true), plain = gradient(false);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(lean.data<double>()[i], plain.data<double>()[i], 1e-14);
  }
}

TEST(Recompute, IsThePlainCallWithoutATapeAndUnderObservation) {
  struct Counting : LayerObserver {
    int calls = 0;
    void on_enter(Layer&, const Tensor&) override { ++calls; }
    void on_result(Layer&, const Tensor&, const Tensor&, const Measures&) override {}
    void on_leave(Layer&) noexcept override {}
    void on_destroy(Layer&) noexcept override {}
  } counting;
  Stack model({.recompute = true}), plain({});
  const Tensor x = noise({5, 4}, "x");
  EXPECT_TRUE(same_bits(model(x), plain(x)));
  model.a.norm.attach(counting);
  expect_same(step(model, x), step(plain, x));
  EXPECT_EQ(counting.calls, 1);
  model.a.norm.detach(counting);
}

TEST(Recompute, RefusesALayerThatChangedBeforeBackward) {
  const Tensor x = noise({5, 4}, "x");
  Stack model({.recompute = true});
  {
    Tape tape;
    const Tensor y = sum(model(x));
    model.b.eval();
    EXPECT_THAT(message_of([&] { (void)tape.backward(y); }),
                HasSubstr("was changed (a mode, or layers in it) between"));
    model.train();
  }
  Tape tape;
  const Tensor y = sum(model(x));
  (void)model.b.down.weight.mutable_data<double>("a hand");
  EXPECT_THAT(message_of([&] { (void)tape.backward(y); }),
              HasSubstr("was overwritten by 'a hand' before backward"));
}

TEST(Recompute, RefusesSecondDerivatives) {
  Stack model({.recompute = true, .norm = "layer"});
  Tape tape;
  const Tensor y = sum(model(noise({5, 4}, "x")));
  EXPECT_THAT(message_of([&] { (void)tape.backward(y, {.record = true}); }),
              HasSubstr("keeps nothing for second derivatives"));
}

TEST(Recompute, LeavesStateAndTapesAsTheyWereWhenTheBlockThrows) {
  struct Fragile : Layer {
    Linear& map = add<Linear>("map", {.in = 3, .out = 3});
    Dropout& drop = add<Dropout>("drop", {.p = 0.5});
    int calls = 0;
    Tensor forward(const Tensor& x) override {
      const Tensor y = drop(map(x));
      if (++calls == 2) throw Error("the second call fails");
      return y;
    }
  } layer;
  layer.initialize(2);
  const Tensor x = Tensor::ones({2, 3});
  Tape tape;
  const Tensor y = sum(recompute(layer, x));
  const CheckpointPart before = layer.checkpoint();
  EXPECT_THROW((void)tape.backward(y), Error);
  const CheckpointPart after = layer.checkpoint();
  EXPECT_EQ(before.values, after.values);
  Tape other;
  EXPECT_NO_THROW((void)other.backward(sum(layer(x))));
}

}  // namespace
}  // namespace steady
