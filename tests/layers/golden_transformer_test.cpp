// Transformer blocks and whole decoders against PyTorch: outputs, every gradient, training steps.
#include <gtest/gtest.h>

#include <set>
#include <steadygrad/core/ops/loss.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/decoder.hpp>
#include <steadygrad/optim/adam.hpp>
#include <steadygrad/optim/clip.hpp>
#include <string>

#include "tests/layers/golden_models.hpp"
#include "tests/support/golden.hpp"

namespace steady {
namespace {

using testing_support::expect_close;
using testing_support::Golden;
using testing_support::GoldenCase;
using testing_support::gpt_options;
using testing_support::read_state;
using testing_support::tokens_of;

/// 1e-10 in float64, 1e-4 relative in float32.
double tolerance_of(Dtype dtype) { return dtype == Dtype::F64 ? 1e-10 : 1e-4; }

void expect_values(const Tensor& got, const Tensor& want, Dtype dtype) {
  expect_close(got.detached_copy(Dtype::F64), want, tolerance_of(dtype));
}

/// Every parameter has the gradient of that name, and there are no others.
void expect_gradients(const Module& model, const Gradients& gradients, const GoldenCase& c,
                      const std::string& group, Dtype dtype) {
  std::set<std::string> names;
  for (const Parameter& p : model.parameters()) {
    SCOPED_TRACE(p.name);
    names.insert(p.name);
    ASSERT_TRUE(gradients.contains(p.value));
    expect_values(gradients[p.value], c.tensor(group + "/" + p.name), dtype);
  }
  const std::vector<std::string> want = c.datasets(group);
  EXPECT_EQ(names, std::set<std::string>(want.begin(), want.end()));
}

class GoldenTransformer : public testing::TestWithParam<Dtype> {
 protected:
  const Dtype dtype = GetParam();
  const Golden models = Golden("models.h5");

  [[nodiscard]] Tensor real(const GoldenCase& c, const std::string& name) const {
    return c.tensor(name).detached_copy(dtype);
  }
  [[nodiscard]] Tensor leaf(const GoldenCase& c, const std::string& name) const {
    return real(c, name).set_requires_grad();
  }
  /// A model with the case's initial parameters.
  template <class M>
  void start(M& model, const GoldenCase& c) const {
    model.to(dtype);
    model.load(read_state(c, "state"));
  }
};

TransformerBlock::Options block_options(const GoldenCase& c, bool decoder) {
  const bool layer_norm = c.attribute_string("norm") == "layer_norm";
  return {.attention = {.dim = c.attribute_int("d_model"),
                        .heads = c.attribute_int("num_heads"),
                        .causal = decoder},
          .mlp = {.dim = c.attribute_int("d_model"), .hidden = c.attribute_int("ffn_dim")},
          .cross_attention = decoder,
          .norm = NormSpec::parse(layer_norm ? "layer" : "rms"),
          .placement = Placement::parse(c.attribute_string("placement"))};
}

TEST_P(GoldenTransformer, EncoderBlocksFollowPyTorch) {
  for (const GoldenCase& c : models.cases("encoder_block")) {
    SCOPED_TRACE(c.path());
    TransformerBlock block(block_options(c, false));
    start(block, c);
    const Tensor x = leaf(c, "in/x");
    Tape tape;
    const Tensor y = block(x, {.self = {.mask = c.tensor("in/keep")}});
    expect_values(y, c.tensor("out/y"), dtype);
    const Gradients g = tape.backward(y, {.cotangent = real(c, "grad_out/y")});
    expect_values(g[x], c.tensor("grad_in/x"), dtype);
    expect_gradients(block, g, c, "grad", dtype);
  }
}

TEST_P(GoldenTransformer, DecoderBlocksFollowPyTorch) {
  for (const GoldenCase& c : models.cases("decoder_block")) {
    SCOPED_TRACE(c.path());
    TransformerBlock block(block_options(c, true));
    start(block, c);
    const Tensor x = leaf(c, "in/x");
    const Tensor memory = leaf(c, "in/memory");
    Tape tape;
    const Tensor y = block(x, {.self = {.mask = c.tensor("in/keep")},
                               .memory = memory,
                               .memory_mask = c.tensor("in/memory_keep")});
    expect_values(y, c.tensor("out/y"), dtype);
    const Gradients g = tape.backward(y, {.cotangent = real(c, "grad_out/y")});
    expect_values(g[x], c.tensor("grad_in/x"), dtype);
    expect_values(g[memory], c.tensor("grad_in/memory"), dtype);
    expect_gradients(block, g, c, "grad", dtype);
  }
}

TEST_P(GoldenTransformer, GptFollowsPyTorch) {
  const GoldenCase c = models.group("/gpt");
  Decoder model(gpt_options(c));
  start(model, c);
  Tape tape;
  const Tensor logits = model(tokens_of(c, 0, false));
  const Tensor loss = cross_entropy(logits, tokens_of(c, 0, true));
  expect_values(slice(logits, 0, 0, 1), reshape(c.tensor("step_0/logits_sequence_0"), {1, 32, 65}),
                dtype);
  expect_values(loss, c.tensor("step_0/loss"), dtype);
  expect_gradients(model, tape.backward(loss), c, "step_0/grad", dtype);
}

TEST_P(GoldenTransformer, TenAdamWStepsOfGptFollowPyTorch) {
  const GoldenCase c = models.group("/gpt");
  Decoder model(gpt_options(c));
  start(model, c);
  AdamW optimizer(model.parameters(),
                  {.lr = c.attribute_double("lr"),
                   .beta1 = c.attribute_double("beta1"),
                   .beta2 = c.attribute_double("beta2"),
                   .eps = c.attribute_double("adam_eps"),
                   .weight_decay = c.attribute_double("weight_decay_matrices")});
  const Tensor losses = c.tensor("losses");
  const Tensor norms = c.tensor("grad_norms");
  const double tolerance = tolerance_of(dtype);
  for (std::int64_t step = 0; step < losses.numel(); ++step) {
    SCOPED_TRACE(step);
    const auto at = static_cast<std::size_t>(step);
    Tape tape;
    const Tensor loss = model.loss(tokens_of(c, step, false), tokens_of(c, step, true));
    const Gradients gradients = tape.backward(loss);
    EXPECT_NEAR(loss.item(), losses.data<double>()[at], tolerance);
    EXPECT_NEAR(grad_norm(gradients, model.parameters()), norms.data<double>()[at],
                tolerance * norms.data<double>()[at]);
    optimizer.step(gradients);
  }
  for (const std::string& name : c.datasets("state_after_10")) {
    SCOPED_TRACE(name);
    expect_close(find(model.state(), name).detached_copy(Dtype::F64),
                 c.tensor("state_after_10/" + name), tolerance);
  }
}

Decoder::Options minimind_options(const GoldenCase& c) {
  Decoder::Options o = Decoder::minimind({.vocab = c.attribute_int("vocab_size"),
                                          .context = c.attribute_int("max_position_embeddings"),
                                          .dim = c.attribute_int("hidden_size"),
                                          .layers = c.attribute_int("num_hidden_layers"),
                                          .heads = c.attribute_int("num_attention_heads")},
                                         c.attribute_int("num_key_value_heads"));
  o.hidden = c.attribute_int("intermediate_size");
  return o;
}

TEST_P(GoldenTransformer, MiniMindFollowsPyTorch) {
  const GoldenCase c = models.group("/minimind");
  Decoder model(minimind_options(c));
  start(model, c);
  const Tensor ids = c.tensor("in/input_ids");
  State hidden;
  Tape tape;
  const Tensor logits = model(ids, {.hidden = &hidden});
  expect_values(logits, c.tensor("out/logits"), dtype);
  EXPECT_EQ(hidden.size(), c.datasets("out/hidden").size());
  for (const NamedTensor& h : hidden) {
    SCOPED_TRACE(h.name);
    expect_values(h.value, c.tensor("out/hidden/" + h.name), dtype);
  }
  const Tensor loss = cross_entropy(logits, next_token_targets(c.tensor("in/labels")));
  expect_values(loss, c.tensor("out/loss"), dtype);
  expect_gradients(model, tape.backward(loss), c, "grad", dtype);
}

TEST_P(GoldenTransformer, MiniMindWithAPaddingMaskFollowsPyTorch) {
  const GoldenCase c = models.group("/minimind");
  Decoder model(minimind_options(c));
  start(model, c);
  const Tensor logits = model(c.tensor("in/input_ids"), {.mask = c.tensor("in/attention_mask")});
  expect_values(logits, c.tensor("out/logits_with_attention_mask"), dtype);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, GoldenTransformer, testing::Values(Dtype::F64, Dtype::F32));

}  // namespace
}  // namespace steady
