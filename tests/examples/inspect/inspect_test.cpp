// What the names, values and configs of checkpoints say about their norms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <set>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/hdf5.hpp>
#include <steadygrad/core/io/replace_file.hpp>
#include <steadygrad/core/io/safetensors.hpp>
#include <steadygrad/core/io/training_state.hpp>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <string>

#include "examples/inspect/report.hpp"
#include "tests/core/data/files.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/programs.hpp"

namespace steady::examples::inspect {
namespace {

using safetensors::Stored;
using test::TemporaryDirectory;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::golden_path;
using testing_support::message_of;

/// A checkpoint of these tensors, looked at with a config of this text (none when empty).
class Checkpoint {
 public:
  explicit Checkpoint(const std::vector<Stored>& tensors, const std::string& config = {}) {
    safetensors::write(dir_.path() / "model.safetensors", tensors);
    if (!config.empty()) std::ofstream(dir_.path() / "config.json") << config;
    report = inspect_checkpoint(dir_.path());
  }
  [[nodiscard]] const NormFinding& at(const std::string& path) const {
    for (const NormFinding& n : report.norms) {
      if (n.path == path) return n;
    }
    throw Error("no norm at " + path);
  }

 private:
  TemporaryDirectory dir_;

 public:
  Report report;
};

Tensor ones(const Shape& shape) { return Tensor::ones(shape); }

/// A block that no family's names fit.
std::vector<Stored> scale_only() {
  return {{"net.0.norm.weight", ones({4})}, {"net.0.proj.weight", ones({4, 4})}};
}

struct Case {
  const char* config;
  Kind kind;
  Certainty certainty;
};

TEST(InspectScaleOnly, ConfigDecides) {
  for (const Case& c : {
           Case{R"({"model_type": "llama"})", Kind::RmsNorm, Certainty::Certain},
           Case{R"({"architectures": ["CohereForCausalLM"]})", Kind::LayerNorm, Certainty::Certain},
           Case{R"({"model_type": "t5", "layer_norm_epsilon": 1e-6})", Kind::RmsNorm,
                Certainty::Certain},
           Case{R"({"norm_type": "low_precision_layernorm"})", Kind::LayerNorm, Certainty::Certain},
           Case{R"({"norm_class_name": "RMSNorm", "layer_norm_eps": 1})", Kind::RmsNorm,
                Certainty::Certain},
           Case{R"({"model_type": "new", "rms_norm_eps": 1e-6})", Kind::RmsNorm, Certainty::Likely},
           Case{R"({"text_config": {"rms_norm_eps": 1e-6}})", Kind::RmsNorm, Certainty::Likely},
           Case{R"({"layer_norm_eps": 1e-6})", Kind::LayerNorm, Certainty::Likely},
           Case{R"({"attention_bias": false})", Kind::RmsNorm, Certainty::Likely},
           Case{R"({"attention_bias": false, "layer_norm_eps": 1})", Kind::LayerNorm,
                Certainty::Likely},
           Case{R"({"rms_norm_eps": 1, "layer_norm_eps": 1})", Kind::Unknown,
                Certainty::Undecidable},
           Case{R"({"hidden_size": 4})", Kind::Unknown, Certainty::Undecidable},
       }) {
    SCOPED_TRACE(c.config);
    const Checkpoint file(scale_only(), c.config);
    const NormFinding& norm = file.at("net.0.norm");
    EXPECT_EQ(to_string(norm.kind), to_string(c.kind));
    EXPECT_EQ(to_string(norm.certainty), to_string(c.certainty));
    EXPECT_EQ(norm.would_decide.empty(), c.certainty != Certainty::Undecidable);
  }
}

TEST(InspectScaleOnly, NamesOfAFamilyMakeItLikely) {
  const auto layer = [](const std::string& norm) {
    return Stored{"model.layers.0." + norm + ".weight", ones({4})};
  };
  const Stored mlp{"model.layers.0.mlp.gate_proj.weight", ones({8, 4})};
  const Checkpoint llama({layer("input_layernorm"), layer("post_attention_layernorm"), mlp});
  EXPECT_EQ(llama.report.family->name, "Llama");
  EXPECT_EQ(llama.at("model.layers.0.input_layernorm").kind, Kind::RmsNorm);
  EXPECT_EQ(llama.at("model.layers.0.input_layernorm").certainty, Certainty::Likely);
  const Checkpoint cohere({layer("input_layernorm"), mlp});
  EXPECT_EQ(cohere.at("model.layers.0.input_layernorm").kind, Kind::LayerNorm);
  EXPECT_EQ(cohere.report.placement, Placement::Parallel);
  const Checkpoint gemma({layer("input_layernorm"), layer("post_attention_layernorm"),
                          layer("pre_feedforward_layernorm"), layer("post_feedforward_layernorm"),
                          mlp});
  EXPECT_EQ(gemma.report.family->name, "Gemma 2");
  EXPECT_EQ(gemma.at("model.layers.0.input_layernorm").unit_offset, 1.0);
  EXPECT_EQ(gemma.report.placement, Placement::Sandwich);
}

TEST(InspectScaleOnly, GainsNearZeroHintAtAUnitOffset) {
  const Stored mlp{"model.layers.0.mlp.gate_proj.weight", ones({8, 4})};
  const Checkpoint file({{"model.layers.0.input_layernorm.weight", Tensor::full({4}, 0.01)},
                         {"model.layers.0.post_attention_layernorm.weight", ones({4})},
                         mlp});
  EXPECT_THAT(file.at("model.layers.0.input_layernorm").reasons,
              Contains(HasSubstr("perhaps 1 is added")));
  EXPECT_THAT(file.at("model.layers.0.post_attention_layernorm").reasons,
              Not(Contains(HasSubstr("perhaps 1 is added"))));
}

TEST(InspectScaleOnly, NameMaySayIt) {
  const Checkpoint file({{"a.rms_norm.weight", ones({4})}, {"b.weight", ones({4})}});
  EXPECT_EQ(file.at("a.rms_norm").kind, Kind::RmsNorm);
  EXPECT_EQ(file.report.norms.size(), 1U);  // one vector alone may be anything
}

TEST(InspectScaleAndShift, TransformersHaveLayerNorm) {
  const Checkpoint file(
      {{"0.weight", ones({4})}, {"0.bias", ones({4})}, {"1.weight", ones({4, 4})}});
  EXPECT_EQ(file.at("0").kind, Kind::LayerNorm);
  EXPECT_EQ(file.at("0").certainty, Certainty::Likely);
}

TEST(InspectScaleAndShift, ConvolutionalModelsLeaveItOpen) {
  const std::vector<Stored> convolutions{{"c1.weight", ones({4, 1, 3, 3})},
                                         {"c2.weight", ones({4, 4, 3, 3})}};
  for (const auto& [name, kind] : {std::pair("norm", Kind::Unknown),
                                   {"gn1", Kind::GroupNorm},
                                   {"instance_norm", Kind::InstanceNorm},
                                   {"ln", Kind::LayerNorm}}) {
    SCOPED_TRACE(name);
    std::vector<Stored> tensors = convolutions;
    tensors.push_back({std::string(name) + ".weight", ones({4})});
    tensors.push_back({std::string(name) + ".bias", ones({4})});
    const Checkpoint file(tensors);
    EXPECT_EQ(to_string(file.at(name).kind), to_string(kind));
    EXPECT_EQ(file.at(name).certainty,
              kind == Kind::Unknown ? Certainty::Undecidable : Certainty::Likely);
  }
}

std::vector<Stored> batch_norm(const Tensor& mean, const Tensor& var, double batches) {
  return {{"layer1.0.downsample.1.weight", ones({2})},
          {"layer1.0.downsample.1.bias", ones({2})},
          {"layer1.0.downsample.1.running_mean", mean},
          {"layer1.0.downsample.1.running_var", var},
          {"layer1.0.downsample.1.num_batches_tracked", Tensor::scalar(batches, Dtype::I64)}};
}

TEST(InspectBatchNorm, StatisticsTellWhetherItWasTrained) {
  const std::string path = "layer1.0.downsample.1";
  const Checkpoint fresh(batch_norm(Tensor::zeros({2}), ones({2}), 0));
  EXPECT_EQ(fresh.at(path).kind, Kind::BatchNorm);
  EXPECT_EQ(fresh.at(path).certainty, Certainty::Certain);
  EXPECT_EQ(fresh.at(path).trained, false);
  EXPECT_THAT(fresh.at(path).reasons, Contains(HasSubstr("untrained: running_var is exactly 1")));
  const Checkpoint trained(batch_norm(Tensor::of({2}, {0.1, 0.2}), Tensor::of({2}, {1, 2}), 100));
  EXPECT_EQ(trained.at(path).trained, true);
  EXPECT_THAT(trained.at(path).reasons, Contains(HasSubstr("100 batches")));
}

TEST(InspectHealth, BadValuesAreCounted) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<Stored> bad = batch_norm(Tensor::zeros({2}), Tensor::of({2}, {-1, 1e-12}), 3);
  bad.push_back({"ln.weight", Tensor::of({4}, {0, 1, 1, 100})});
  bad.push_back({"ln.bias", Tensor::of({4}, {nan, 1, 1, 1e39})});
  bad.push_back({"dead_norm.weight", Tensor::zeros({4})});
  const Checkpoint file(bad);
  EXPECT_THAT(file.at("layer1.0.downsample.1").health,
              testing::ElementsAre("1 of 2 running variances are negative",
                                   "1 of 2 running variances are below 1e-08"));
  EXPECT_THAT(file.at("ln").health,
              testing::ElementsAre("1 of 4 gains are 0",
                                   "1 outliers: the largest gain is 100, the median 1",
                                   "bias: 1 NaN and 1 infinite of 4"));
  EXPECT_THAT(file.at("dead_norm").health, Contains(HasSubstr("every gain is 0")));
}

TEST(InspectHealth, UnitOffsetCountsIntoTheGain) {
  const Checkpoint file({{"model.layers.0.input_layernorm.weight", Tensor::zeros({4})}},
                        R"({"model_type": "gemma"})");
  EXPECT_THAT(file.at("model.layers.0.input_layernorm").health, IsEmpty());
  const Checkpoint dead({{"model.layers.0.input_layernorm.weight", Tensor::full({4}, -1.0)}},
                        R"({"model_type": "gemma"})");
  EXPECT_THAT(dead.at("model.layers.0.input_layernorm").health,
              Contains(HasSubstr("every gain is 0")));
}

TEST(InspectHealth, WidthsMustAgree) {
  const Checkpoint file({{"h.0.ln_1.weight", ones({4})},
                         {"h.0.ln_1.bias", ones({4})},
                         {"h.1.ln_1.weight", ones({4})},
                         {"h.1.ln_1.bias", ones({4})},
                         {"h.2.ln_1.weight", ones({5})},
                         {"h.2.ln_1.bias", ones({5})},
                         {"ln_f.weight", ones({4})},
                         {"ln_f.bias", ones({3})}},
                        R"({"model_type": "gpt2", "n_embd": 4})");
  EXPECT_THAT(file.at("h.0.ln_1").health, IsEmpty());
  EXPECT_THAT(file.at("h.2.ln_1").health, Contains("width 5 where the other blocks have 4"));
  EXPECT_THAT(file.at("ln_f").health, Contains("bias has width 3, not 4"));
  const Checkpoint other({{"ln_f.weight", ones({4})}, {"ln_f.bias", ones({4})}},
                         R"({"model_type": "gpt2", "n_embd": 8})");
  EXPECT_THAT(other.at("ln_f").health, Contains("width 4, but the config's n_embd is 8"));
}

TEST(Inspect, OtherNormsAreFound) {
  const Checkpoint file({{"embeddings.LayerNorm.gamma", ones({4})},
                         {"embeddings.LayerNorm.beta", ones({4})},
                         {"conv.weight_g", ones({4, 1})},
                         {"conv.weight_v", ones({4, 4})},
                         {"fc.weight_orig", ones({4, 4})},
                         {"fc.weight_u", ones({4})},
                         {"attn.k_norm.weight", ones({2, 8})},
                         {"block.gamma", ones({4})},
                         {"linear.weight", ones({4, 4})},
                         {"linear.bias", ones({4})}});
  EXPECT_EQ(file.report.norms.size(), 4U);
  EXPECT_EQ(file.at("embeddings.LayerNorm").kind, Kind::LayerNorm);
  EXPECT_EQ(file.at("embeddings.LayerNorm").place, "on the embedding");
  EXPECT_EQ(file.at("conv").kind, Kind::WeightNorm);
  EXPECT_EQ(file.at("fc").kind, Kind::SpectralNorm);
  EXPECT_EQ(file.at("attn.k_norm").per_head, true);
}

TEST(Inspect, FilesWithoutNormsSayWhatThatMayMean) {
  const Checkpoint file({{"model.layers.0.mlp.gate_proj.weight", ones({4, 4})}});
  EXPECT_THAT(file.report.norms, IsEmpty());
  EXPECT_THAT(file.report.notes, Contains(HasSubstr("norms that learn nothing")));
}

TEST(Inspect, ModelsInOneFileAreTakenApart) {
  const Checkpoint file({{"text.model.layers.0.input_layernorm.weight", ones({4})},
                         {"text.model.layers.0.post_attention_layernorm.weight", ones({4})},
                         {"text.model.layers.0.mlp.gate_proj.weight", ones({8, 4})},
                         {"text.model.norm.weight", ones({4})},
                         {"image.blocks.0.norm_1.weight", ones({4})},
                         {"image.blocks.0.attn.Wqkv.weight", ones({12, 4})},
                         {"other.thing.of.its.own_norm.weight", ones({4})}});
  EXPECT_EQ(file.at("text.model.layers.0.input_layernorm").kind, Kind::RmsNorm);
  EXPECT_EQ(file.at("text.model.norm").kind, Kind::RmsNorm);
  EXPECT_EQ(file.at("image.blocks.0.norm_1").kind, Kind::LayerNorm);
  EXPECT_EQ(file.at("other.thing.of.its.own_norm").kind, Kind::Unknown);
  EXPECT_EQ(file.report.family, nullptr);
}

TEST(Inspect, BertIsPostNorm) {
  const std::string layer = "bert.encoder.layer.0.";
  const Checkpoint file({{layer + "attention.output.LayerNorm.weight", ones({4})},
                         {layer + "attention.output.LayerNorm.bias", ones({4})},
                         {layer + "output.LayerNorm.weight", ones({4})},
                         {layer + "output.LayerNorm.bias", ones({4})},
                         {layer + "attention.self.query.weight", ones({4, 4})}});
  EXPECT_EQ(file.report.family->name, "BERT");
  EXPECT_EQ(file.report.placement, Placement::Post);
  EXPECT_EQ(file.at(layer + "output.LayerNorm").place, "after the residual add");
}

TEST(Inspect, Hdf5CheckpointsAreReadByTheirPaths) {
  const TemporaryDirectory dir;
  const auto file = hdf5::File::create_in_memory("m");
  const auto model = file.root().group("model", true);
  const auto parameters = model.group("parameters", true);
  parameters.write("bn1.weight", ones({2}));
  parameters.write("bn1.bias", ones({2}));
  model.group("buffers", true).write("bn1.running_mean", Tensor::of({2}, {1, 2}));
  model.group("buffers", true).write("bn1.running_var", Tensor::of({2}, {1, 2}));
  file.root().group("optimizer", true).write("bn1.weight", ones({2}));
  replace_file(dir.path() / "m.h5", file.image());
  const Report report = inspect_checkpoint(dir.path() / "m.h5");
  ASSERT_EQ(report.norms.size(), 1U);
  EXPECT_EQ(report.norms[0].path, "bn1");
  EXPECT_EQ(report.norms[0].kind, Kind::BatchNorm);
  EXPECT_EQ(report.norms[0].trained, true);

  const auto plain = hdf5::File::create_in_memory("p");
  plain.root().group("h", true).group("0", true).group("ln_1", true).write("weight", ones({4}));
  replace_file(dir.path() / "p.h5", plain.image());
  EXPECT_EQ(inspect_checkpoint(dir.path() / "p.h5").norms.at(0).path, "h.0.ln_1");
}

TEST(Inspect, TrainingStatesOfOurOwnAreRead) {
  struct Net : Layer {
    Layer& bn1 = add_norm("bn1", NormSpec::parse("batch"), 2);
    Tensor forward(const Tensor& x) override { return bn1(x); }
  } net;
  net.initialize(1);
  const TemporaryDirectory dir;
  TrainingState state;
  state.track("model", net).save(dir.path() / "step.h5");
  const Report report = inspect_checkpoint(dir.path() / "step.h5");
  ASSERT_EQ(report.norms.size(), 1U);
  EXPECT_EQ(report.norms[0].path, "bn1");
  EXPECT_EQ(report.norms[0].kind, Kind::BatchNorm);
  EXPECT_EQ(report.norms[0].trained, false);
}

TEST(Inspect, ConfigsAreNotTrusted) {
  const auto parse = [](const std::string& text) {
    return message_of([&] { (void)Config::parse(text, "c.json"); });
  };
  EXPECT_THAT(parse("[1]"), HasSubstr("'c.json' is no JSON object"));
  EXPECT_THAT(parse("{"), HasSubstr("'c.json' is no JSON"));
  EXPECT_THAT(parse(R"({"a": )" + std::string(100'000, '[')), HasSubstr("more than 64 deep"));
  EXPECT_THAT(message_of([] { (void)Config::read("/none/config.json"); }),
              HasSubstr("there is no file"));
  const Config odd = Config::parse(R"({"model_type": 3, "architectures": [4], "eps": "x"})", "c");
  EXPECT_EQ(odd.model_type(), "");
  EXPECT_EQ(odd.number("eps"), std::nullopt);
}

TEST(Inspect, EveryArchitectureHasItsSource) {
  std::set<std::string_view> names;
  for (const Architecture& row : architectures()) {
    SCOPED_TRACE(row.name);
    EXPECT_TRUE(names.insert(row.name).second);
    EXPECT_NE(row.kind, Kind::Unknown);
    EXPECT_GT(row.source.size(), 20U);
    for (const std::string& type : words(row.model_types)) EXPECT_EQ(by_model_type(type), &row);
  }
  EXPECT_EQ(by_model_type("unheard"), nullptr);
}

TEST(InspectProgram, PrintsATableOrJson) {
  const std::string folder = golden_path("checkpoints/llama_rmsnorm").string();
  const auto table = testing_support::run_program("inspect_checkpoint", folder);
  EXPECT_EQ(table.code, 0);
  EXPECT_THAT(table.text, HasSubstr("model.layers.0.input_layernorm"));
  EXPECT_THAT(table.text, HasSubstr("5 rms_norm. 0 undecidable"));
  const auto json = testing_support::run_program("inspect_checkpoint", "--json " + folder);
  EXPECT_EQ(json.code, 0);
  EXPECT_EQ(nlohmann::json::parse(json.text)["architecture"], "Llama");
  const std::string bare = golden_path("checkpoints/ambiguous_weight_only").string();
  const auto decided = testing_support::run_program("inspect_checkpoint",
                                                    bare + " --config " + folder + "/config.json");
  EXPECT_THAT(decided.text, HasSubstr("3 rms_norm. 0 undecidable"));
  const auto bad = testing_support::run_program(
      "inspect_checkpoint", golden_path("checkpoints/malformed/hole_in_data.safetensors").string());
  EXPECT_EQ(bad.code, 1);
  EXPECT_THAT(bad.text, HasSubstr("hole in the data"));
  EXPECT_EQ(testing_support::run_program("inspect_checkpoint").code, 2);
}

}  // namespace
}  // namespace steady::examples::inspect
