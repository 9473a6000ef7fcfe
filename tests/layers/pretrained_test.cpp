// Weights of PyTorch in our models, and ours in PyTorch's files.
#include <steadygrad/layers/pretrained.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/safetensors_checkpoint.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/pool.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/layers/conv2d.hpp>
#include <steadygrad/layers/decoder.hpp>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <string>

#include "tests/core/data/files.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/message_of.hpp"

namespace steady {
namespace {

using safetensors::Checkpoint;
using safetensors::Stored;
using safetensors::Type;
using test::TemporaryDirectory;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::expect_close;
using testing_support::Golden;
using testing_support::golden_path;
using testing_support::GoldenCase;
using testing_support::message_of;

struct Cnn : Layer {
  struct Options {};
  explicit Cnn(Options options) : o(options) {}
  Options o;
  Conv2d& conv1 = add<Conv2d>("conv1", {.in = 1, .out = 4, .kernel = 3, .padding = 1});
  Layer& bn1 = add_norm("bn1", NormSpec::parse("batch"), 4);
  Conv2d& conv2 = add<Conv2d>("conv2", {.in = 4, .out = 8, .kernel = 3, .padding = 1});
  Layer& bn2 = add_norm("bn2", NormSpec::parse("batch"), 8);
  Linear& fc = add<Linear>("fc", {.in = 32, .out = 10});

  Tensor forward(const Tensor& x) override {
    Tensor h = max_pool2d(relu(bn1(conv1(x))), 2);
    return fc(flatten(max_pool2d(relu(bn2(conv2(h))), 2), 1));
  }
};

const WeightLayout cnn_layout{.flattened = {{"fc.weight", 8}}};

/// Images of the first step, [8, 8, 8, 1], and the logits after five.
Tensor cnn_images(const GoldenCase& c) {
  return reshape(slice(c.tensor("in/x"), 0, 0, 1), {8, 8, 8, 1});
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

Decoder::Options gpt_options(const GoldenCase& c) {
  return Decoder::gpt2({.vocab = c.attribute_int("vocab_size"),
                        .context = c.attribute_int("block_size"),
                        .dim = c.attribute_int("n_embd"),
                        .layers = c.attribute_int("n_layer"),
                        .heads = c.attribute_int("n_head")});
}

/// Logits of sequence 0 at the first step, in float64.
Tensor gpt_logits(Decoder& model, const GoldenCase& c) {
  model.to(Dtype::F64);
  const Tensor all = c.tensor("in/tokens");
  const Tensor ids =
      reshape(slice(slice(all, 0, 0, 1), 2, 0, all.dim(2) - 1), {all.dim(1), all.dim(2) - 1});
  return slice(model(ids), 0, 0, 1);
}

Tensor gpt_golden_logits(const GoldenCase& c) {
  return reshape(c.tensor("step_0/logits_sequence_0"), {1, 32, 65});
}

State golden_state(const GoldenCase& c, const std::string& group) {
  State state;
  for (const std::string& name : c.datasets(group)) {
    state.push_back({name, c.tensor(group + "/" + name)});
  }
  return state;
}

TEST(Pretrained, MiniMindGivesItsLogits) {
  const GoldenCase c = Golden("models.h5").group("/minimind");
  for (const bool half : {false, true}) {
    SCOPED_TRACE(half);
    Decoder model(minimind_options(c));
    load_safetensors(model,
                     golden_path(half ? "checkpoints/minimind_bf16" : "checkpoints/minimind_f32"),
                     {.layout = weight_layout(model)});
    model.to(Dtype::F64);
    expect_close(model(c.tensor("in/input_ids")),
                 c.tensor(half ? "out/logits_from_bf16_weights" : "out/logits"), 1e-10);
  }
}

TEST(Pretrained, CnnGivesItsLogits) {
  const GoldenCase c = Golden("models.h5").group("/cnn");
  Cnn model({});
  load_safetensors(model, golden_path("checkpoints/batchnorm_cnn"), {.layout = cnn_layout});
  model.to(Dtype::F64);
  model.eval();
  // The file has the trained state rounded to float32.
  expect_close(model(cnn_images(c)), c.tensor("after/eval_logits_x0"), 1e-6);
}

TEST(Pretrained, CnnSavesTheFileOfPyTorch) {
  const TemporaryDirectory dir;
  const auto golden = golden_path("checkpoints/batchnorm_cnn/model.safetensors");
  Cnn model({});
  load_safetensors(model, golden, {.layout = cnn_layout});
  save_safetensors(model, dir.path() / "m.safetensors", {.layout = cnn_layout});
  const Checkpoint want = Checkpoint::open(golden);
  const Checkpoint got = Checkpoint::open(dir.path());
  EXPECT_EQ(got.names(), want.names());
  for (const std::string& name : want.names()) {
    SCOPED_TRACE(name);
    EXPECT_EQ(got.at(name).type, want.at(name).type);
    EXPECT_EQ(got.at(name).dims, want.at(name).dims);
    EXPECT_TRUE(std::ranges::equal(got.files()[0].bytes(name), want.files()[0].bytes(name)));
  }
}

TEST(Pretrained, GptWithConv1dMatricesGivesItsLogits) {
  const GoldenCase c = Golden("models.h5").group("/gpt");
  // The file as GPT-2's are: no prefix, [in, out] matrices, the causal mask, a head of its own.
  const TemporaryDirectory dir;
  std::vector<Stored> tensors;
  for (const auto& [name, value] : golden_state(c, "state")) {
    const bool turned = value.rank() == 2 && name.find(".h.") != std::string::npos;
    const std::string bare = name.substr(std::string("transformer.").size());
    tensors.push_back({bare, turned ? transpose(value, 0, 1) : value});
    if (bare == "wte.weight") tensors.push_back({"lm_head.weight", value.detached_copy()});
  }
  tensors.push_back({"h.0.attn.bias", Tensor::ones({1, 1, 4, 4})});
  safetensors::write(dir.path() / "model.safetensors", tensors);
  Decoder model(gpt_options(c));
  load_safetensors(model, dir.path(), {.layout = weight_layout(model)});
  expect_close(gpt_logits(model, c), gpt_golden_logits(c), 1e-10);
}

TEST(Pretrained, GptGoesThroughAFileOfGpt2) {
  const TemporaryDirectory dir;
  const GoldenCase c = Golden("models.h5").group("/gpt");
  Decoder model(gpt_options(c));
  model.to(Dtype::F64);
  model.load(golden_state(c, "state"));
  save_safetensors(model, dir.path() / "m.safetensors", {.layout = weight_layout(model)});
  const Checkpoint file = Checkpoint::open(dir.path());
  const std::string name = "transformer.h.1.mlp.c_fc.weight";
  const Tensor ours = find(model.state(), name);
  const Tensor theirs = file.read(name);
  ASSERT_EQ(theirs.shape(), (Shape{ours.dim(1), ours.dim(0)}));
  EXPECT_EQ(theirs.data<double>()[1], ours.data<double>()[static_cast<std::size_t>(ours.dim(1))]);
  EXPECT_EQ(file.find("lm_head.weight"), nullptr);
  EXPECT_EQ(file.aliases()[0].first, "lm_head.weight");
  Decoder again(gpt_options(c));
  again.to(Dtype::F64);
  load_safetensors(again, dir.path(), {.layout = weight_layout(again)});
  expect_close(gpt_logits(again, c), gpt_golden_logits(c), 1e-10);
}

TEST(Pretrained, PublishedGpt2FilesFit) {
  Decoder model(Decoder::gpt2({.vocab = 32, .context = 64, .dim = 16, .layers = 2, .heads = 4}));
  EXPECT_TRUE(load_safetensors(model, golden_path("checkpoints/gpt2_layernorm"),
                               {.layout = weight_layout(model)})
                  .clean());
  Decoder::Options llama =
      Decoder::llama({.vocab = 32, .context = 64, .dim = 16, .layers = 2, .heads = 4});
  llama.kv_heads = 2;
  llama.hidden = 24;
  Decoder second(llama);
  EXPECT_TRUE(load_safetensors(second, golden_path("checkpoints/llama_rmsnorm"),
                               {.layout = weight_layout(second)})
                  .clean());
}

TEST(Pretrained, TiedWeightsStayOneAndFillTwo) {
  const TemporaryDirectory dir;
  Decoder::Options o =
      Decoder::llama({.vocab = 8, .context = 4, .dim = 4, .layers = 1, .heads = 1});
  Decoder untied(o);
  o.tied = true;
  Decoder tied(o);
  tied.initialize(1);
  const auto path = dir.path() / "m.safetensors";
  save_safetensors(tied, path, {.layout = weight_layout(tied)});
  load_safetensors(untied, path, {.layout = weight_layout(untied)});
  const State two = untied.state();
  expect_close(find(two, "lm_head.weight"), find(tied.state(), "model.embed_tokens.weight"), 0.0);
  expect_close(find(two, "model.embed_tokens.weight"), find(two, "lm_head.weight"), 0.0);

  Decoder again(o);
  const std::size_t parameters = again.parameters().size();
  save_safetensors(untied, path, {.layout = weight_layout(untied)});
  load_safetensors(again, path, {.layout = weight_layout(again)});  // both names, equal values
  EXPECT_EQ(again.parameters().size(), parameters);
  find(two, "lm_head.weight").mutable_data<float>()[0] += 1.0F;
  save_safetensors(untied, path, {.layout = weight_layout(untied)});
  EXPECT_THAT(message_of([&] { load_safetensors(again, path, {.layout = weight_layout(again)}); }),
              HasSubstr("'lm_head.weight' and 'model.embed_tokens.weight' are one tensor in the "
                        "model but differ in the file"));
}

/// Two maps that may be one tensor.
struct Pair : Layer {
  struct Options {
    bool tied = false;
  };
  explicit Pair(Options options) : o(options) {
    if (o.tied) head.weight = embed.weight;
  }
  Options o;
  Linear& embed = add<Linear>("embed", {.in = 2, .out = 2, .bias = false});
  Linear& head = add<Linear>("head", {.in = 2, .out = 2, .bias = false});
  Tensor forward(const Tensor& x) override { return head(embed(x)); }
};

TEST(Pretrained, TensorsThatAreOneAreStoredOnce) {
  const TemporaryDirectory dir;
  const auto path = dir.path() / "m.safetensors";
  Pair tied({.tied = true});
  tied.initialize(1);
  save_safetensors(tied, path);
  EXPECT_EQ(Checkpoint::open(path).names(), std::vector<std::string>{"embed.weight"});

  Pair again({.tied = true});
  load_safetensors(again, path);
  EXPECT_TRUE(again.head.weight.shares_storage_with(again.embed.weight));
  EXPECT_EQ(again.parameters().size(), 1U);
  expect_close(again.head.weight, tied.embed.weight, 0.0);
  Pair two({});
  load_safetensors(two, path);
  EXPECT_FALSE(two.head.weight.shares_storage_with(two.embed.weight));
  expect_close(two.head.weight, tied.embed.weight, 0.0);

  save_safetensors(two, path);  // both names, equal values
  load_safetensors(again, path);
  EXPECT_TRUE(again.head.weight.shares_storage_with(again.embed.weight));
  two.head.weight.mutable_data<float>()[0] += 1.0F;
  save_safetensors(two, path);
  EXPECT_THAT(message_of([&] { load_safetensors(again, path); }),
              HasSubstr("'embed.weight' and 'head.weight' are one tensor in the model but differ"));
}

TEST(Pretrained, OneMessageNamesEverythingThatDoesNotFitAndNothingChanges) {
  const TemporaryDirectory dir;
  const std::vector<Stored> tensors{{"fc.weight", Tensor::ones({2, 3})},
                                    {"conv1.weight", Tensor::ones({4, 1, 3, 3})},
                                    {"extra", Tensor::ones({1})}};
  const auto path = dir.path() / "m.safetensors";
  safetensors::write(path, tensors);
  Cnn model({});
  model.initialize(3);
  const Tensor before = model.conv1.weight.detached_copy();
  EXPECT_THAT(message_of([&] { load_safetensors(model, path, {.layout = cnn_layout}); }),
              AllOf(HasSubstr("m.safetensors'"), HasSubstr("missing: conv1.bias; bn1.weight"),
                    HasSubstr("unexpected: extra"),
                    HasSubstr("fc.weight: model f32 [10, 32], file F32 [2, 3]")));
  expect_close(model.conv1.weight, before, 0.0);
  const LoadReport report = load_safetensors(model, path, {.strict = false});
  EXPECT_EQ(report.unexpected, std::vector<std::string>{"extra"});
  expect_close(model.conv1.weight, Tensor::ones({4, 1, 3, 3}), 0.0);
}

TEST(Pretrained, AFlattenedPatternThatDoesNothingIsRefused) {
  const TemporaryDirectory dir;
  Cnn model({});
  model.initialize(5);
  const auto path = dir.path() / "m.safetensors";
  save_safetensors(model, path, {.layout = cnn_layout});
  for (const WeightLayout& wrong : {WeightLayout{.flattened = {{"fc.wieght", 8}}},
                                    WeightLayout{.flattened = {{"fc.weight", 7}}}}) {
    EXPECT_THROW(load_safetensors(model, path, {.layout = wrong}), Error);
    EXPECT_THROW(save_safetensors(model, dir.path() / "n.safetensors", {.layout = wrong}), Error);
    EXPECT_FALSE(std::filesystem::exists(dir.path() / "n.safetensors"));
  }
}

TEST(Pretrained, NamesChangeByRule) {
  const TemporaryDirectory dir;
  Cnn model({});
  model.initialize(5);
  WeightLayout layout = cnn_layout;
  layout.rename = {{"features.0.*", "conv1.*"}, {"classifier.*", "fc.*"}};
  const auto path = dir.path() / "m.safetensors";
  save_safetensors(model, path, {.layout = layout, .type = Type::BF16});
  const Checkpoint file = Checkpoint::open(path);
  EXPECT_EQ(file.at("features.0.weight").type, Type::BF16);
  EXPECT_EQ(file.at("bn1.num_batches_tracked").type, Type::I64);
  EXPECT_NE(file.find("classifier.bias"), nullptr);
  Cnn again({});
  load_safetensors(again, path, {.layout = layout});
  expect_close(again.fc.weight, model.fc.weight, 0.01);
  const std::vector<Stored> twice{{"fc.bias", Tensor::ones({10})},
                                  {"classifier.bias", Tensor::ones({10})}};
  safetensors::write(path, twice);
  EXPECT_THAT(message_of([&] { load_safetensors(again, path, {.layout = layout}); }),
              HasSubstr("'classifier.bias' and 'fc.bias' both come to 'fc.bias'"));
  EXPECT_THAT(message_of([&] { save_safetensors(model, path, {.type = Type::I64}); }),
              HasSubstr("got I64"));
}

}  // namespace
}  // namespace steady
