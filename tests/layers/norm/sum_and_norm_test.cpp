// A sum and its norm in one pass: the bits of an addition and a norm, forward and backward, in the
// operations and in whole decoders, where nobody asks for it.
#include <gtest/gtest.h>

#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/loss.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/layers/decoder.hpp>
#include <steadygrad/layers/norm/layer_norm.hpp>
#include <steadygrad/layers/norm/rms_norm.hpp>

#include "tests/layers/norm/norm_testing.hpp"
#include "tests/support/op_table.hpp"

namespace steady {
namespace {

using namespace norm_testing;
using namespace testing_support;

/// Both outputs in one tensor, so that both get a cotangent.
Tensor both(const SumAndNorm& r) { return r.sum * 0.7 + r.norm; }

SumAndNorm layer(Inputs in) { return add_layer_norm(in[0], in[1], {in[0].dim(-1)}, in[2], in[3]); }
SumAndNorm rms(Inputs in) { return add_rms_norm(in[0], in[1], {in[0].dim(-1)}, in[2]); }

const bool Table = register_ops(
    "SumAndNorm",
    {
        {.name = "layer",
         .f = [](Inputs in) { return both(layer(in)); },
         .inputs = {real({3, 4}), real({3, 4}), real({4}), real({4})},
         .large = {real({300, 257}), real({300, 257}), real({257}), real({257})}},
        {.name = "layer_norm_alone",
         .f = [](Inputs in) { return layer(in).norm; },
         .inputs = {real({3, 4}), real({3, 4}), real({4}), real({4})}},
        {.name = "layer_sum_alone",
         .f = [](Inputs in) { return add_layer_norm(in[0], in[1], {4}).sum; },
         .inputs = {real({3, 4}), real({3, 4})}},
        {.name = "rms",
         .f = [](Inputs in) { return both(rms(in)); },
         .inputs = {real({3, 4}), real({3, 4}), real({4})},
         .large = {real({300, 257}), real({300, 257}), real({257})}},
        {.name = "rms_norm_alone_unit_offset",
         .f = [](Inputs in) { return add_rms_norm(in[0], in[1], {4}, in[2], 1e-6, true).norm; },
         .inputs = {real({3, 4}), real({3, 4}), real({4})}},
    });

struct Outcome {
  std::vector<Tensor> tensors;  // sum, norm, then the gradients of left, right, weight, bias
};

/// The stream's use of a sum: normalised, and read again.
Outcome outcome(const std::function<SumAndNorm(const std::vector<Tensor>&)>& f,
                const std::vector<Tensor>& given, const Tensor& dsum, const Tensor& dnorm) {
  std::vector<Tensor> leaves;
  for (const Tensor& t : given) leaves.push_back(t.detached_copy().set_requires_grad());
  Tape tape;
  const SumAndNorm r = f(leaves);
  const std::vector<Tensor> outputs{r.sum, r.norm}, cotangents{dsum, dnorm};
  const Gradients g = tape.backward(outputs, cotangents);
  Outcome o{{r.sum.detach(), r.norm.detach()}};
  for (const Tensor& leaf : leaves) o.tensors.push_back(g[leaf]);
  return o;
}

TEST(SumAndNorm, HasTheBitsOfTheTwoOperationsForEveryShapeAndDtype) {
  for (const Dtype dtype : {Dtype::F32, Dtype::F64}) {
    for (const auto& [rows, width] :
         {std::pair{1, 1}, {1, 7}, {5, 16}, {65, 384}, {3, 4099}, {90, 1100}}) {
      const Shape shape{rows, width}, parameter{width};
      const auto make = [&](const Shape& s, const char* name, double mean) {
        return noise(s, name, mean).detached_copy(dtype);
      };
      std::vector<Tensor> given{make(shape, "left", 40), make(shape, "right", 0),
                                make(parameter, "weight", 1), make(parameter, "bias", 0)};
      const Tensor dsum = make(shape, "dsum", 0), dnorm = make(shape, "dnorm", 0);
      const auto compare = [&](const auto& fused, const auto& separate) {
        const Outcome a = outcome(fused, given, dsum, dnorm);
        const Outcome b = outcome(separate, given, dsum, dnorm);
        ASSERT_EQ(a.tensors.size(), b.tensors.size());
        for (std::size_t i = 0; i < a.tensors.size(); ++i) {
          EXPECT_TRUE(same_bits(a.tensors[i], b.tensors[i])) << to_string(shape) << " tensor " << i;
        }
      };
      compare([&](const auto& in) { return add_layer_norm(in[0], in[1], parameter, in[2], in[3]); },
              [&](const auto& in) {
                const Tensor sum = in[0] + in[1];
                return SumAndNorm{sum, layer_norm(sum, parameter, in[2], in[3])};
              });
      given.pop_back();
      for (const bool unit : {false, true}) {
        compare(
            [&](const auto& in) {
              return add_rms_norm(in[0], in[1], parameter, in[2], 1e-6, unit);
            },
            [&](const auto& in) {
              const Tensor sum = in[0] + in[1];
              return SumAndNorm{sum, rms_norm(sum, parameter, in[2], 1e-6, unit)};
            });
      }
    }
  }
}

TEST(SumAndNorm, RefusesSummandsOfTwoShapes) {
  const Tensor x = noise({3, 4}, "x");
  EXPECT_THROW((void)add_layer_norm(x, noise({4}, "y"), {4}), ShapeError);
  EXPECT_THROW((void)add_rms_norm(x, x.detached_copy(Dtype::F32), {4}), ShapeError);
  EXPECT_THROW((void)add_rms_norm(x, x, {3}), ShapeError);
  LayerNorm sample({.normalized_shape = {4}, .over_sample = true});
  EXPECT_THROW((void)sample.of_sum(x, x), Error);
}

/// Sees everything and changes nothing: what it is attached to is computed piece by piece.
struct Watcher : LayerObserver {
  int results = 0;
  void on_enter(Layer&, const Tensor&) override {}
  void on_result(Layer&, const Tensor&, const Tensor&, const Measures&) override { ++results; }
  void on_leave(Layer&) noexcept override {}
  void on_destroy(Layer&) noexcept override {}
};

/// Loss and gradients of a decoder, in the order of its parameters.
std::vector<Tensor> training(const Decoder::Options& options, bool watched) {
  Decoder decoder(options);
  decoder.initialize(3);
  Watcher watcher;
  if (watched) {
    decoder.visit([&](Module& m) {
      if (auto* layer = dynamic_cast<Layer*>(&m)) layer->attach(watcher);
    });
  }
  const Tensor ids = Tensor::of({2, 5}, {1, 5, 10, 3, 3, 7, 2, 9, 9, 4}, Dtype::I64);
  const Tensor targets = Tensor::of({2, 5}, {5, 10, 3, 3, 1, 2, 9, 9, 4, 8}, Dtype::I64);
  Tape tape;
  const Tensor loss = decoder.loss(ids, targets);
  const Gradients g = tape.backward(loss);
  EXPECT_EQ(watcher.results > 0, watched);
  std::vector<Tensor> result{loss.detach()};
  for (const Parameter& p : decoder.parameters()) result.push_back(g[p.value]);
  State hidden;
  (void)decoder(ids, {.hidden = &hidden});
  for (const NamedTensor& t : hidden) result.push_back(t.value);
  return result;
}

class FusedStream : public testing::TestWithParam<const char*> {};

TEST_P(FusedStream, HasTheBitsOfTheStreamThatIsWatched) {
  for (const char* norm : {"layer", "rms", "layer(affine=false)", "none"}) {
    Decoder::Options options =
        Decoder::gpt2({.vocab = 11, .context = 6, .dim = 24, .layers = 3, .heads = 2});
    options.placement = Placement::parse(GetParam());
    options.norm = NormSpec::parse(norm);
    const std::vector<Tensor> fused = training(options, false), separate = training(options, true);
    ASSERT_EQ(fused.size(), separate.size());
    for (std::size_t i = 0; i < fused.size(); ++i) {
      EXPECT_TRUE(same_bits(fused[i], separate[i])) << norm << ", tensor " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, FusedStream,
                         testing::Values("pre", "post", "sandwich", "none", "deepnorm",
                                         "scaled_pre", "b2t", "resi_dual", "output", "hybrid",
                                         "mix"));

/// Counts operations: a norm that takes the sum over leaves no addition behind.
TEST(FusedBlock, HasNoAdditionLeft) {
  const auto operations = [](bool watched) {
    Decoder decoder(Decoder::gpt2({.vocab = 11, .context = 6, .dim = 24, .layers = 3, .heads = 2}));
    decoder.initialize(1);
    Watcher watcher;
    if (watched) {
      decoder.visit([&](Module& m) {
        if (auto* layer = dynamic_cast<Layer*>(&m)) layer->attach(watcher);
      });
    }
    Tape tape;
    (void)decoder(Tensor::of({1, 3}, {1, 5, 10}, Dtype::I64));
    return tape.size();
  };
  EXPECT_EQ(operations(true) - operations(false), 6);  // two per block
}

}  // namespace
}  // namespace steady
