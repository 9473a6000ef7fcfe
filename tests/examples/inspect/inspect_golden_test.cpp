// The verdict on every reference checkpoint is that of expected.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "examples/inspect/report.hpp"
#include "tests/support/golden.hpp"

namespace steady::examples::inspect {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::golden_path;

const json& expected() {
  static const json all = json::parse(std::ifstream(golden_path("checkpoints/expected.json")));
  return all;
}

void expect_norm(const NormFinding& norm, const json& want) {
  SCOPED_TRACE(norm.path);
  EXPECT_EQ(to_string(norm.kind), want["kind"]);
  EXPECT_EQ(norm.width, want["dim"]);
  EXPECT_EQ(norm.gain != nullptr, want["has_weight"]);
  EXPECT_EQ(norm.shift != nullptr, want["has_bias"]);
  EXPECT_EQ(norm.unit_offset, want["weight_offset"]);
  EXPECT_EQ(norm.has_running_stats(), want.value("has_running_stats", false));
  EXPECT_EQ(norm.eps.has_value(), !want["eps"].is_null());
  if (norm.eps) {
    EXPECT_DOUBLE_EQ(*norm.eps, want["eps"].get<double>());
  }
  EXPECT_EQ(norm.per_head.has_value(), want.contains("per_head"));
  if (norm.per_head) {
    EXPECT_EQ(*norm.per_head, want["per_head"]);
  }
  if (want.contains("placement")) {
    EXPECT_EQ(norm.place, want["placement"]);
  }
  EXPECT_FALSE(norm.reasons.empty());
  const bool open = want["kind"] == "unknown";
  EXPECT_EQ(norm.certainty, open ? Certainty::Undecidable : Certainty::Certain);
  EXPECT_EQ(norm.would_decide.empty(), !open);
  EXPECT_THAT(norm.health, IsEmpty());
}

class InspectGolden : public testing::TestWithParam<std::string> {};

TEST_P(InspectGolden, VerdictIsTheExpectedOne) {
  const json& want = expected()[GetParam()];
  const Report report = inspect_checkpoint(golden_path("checkpoints/" + GetParam()));
  EXPECT_EQ(report.list.tensors.size(), want["num_tensors"]);
  EXPECT_EQ(report.config.model_type(),
            want["model_type"].is_null() ? "" : want["model_type"].get<std::string>());
  std::map<std::string, const NormFinding*> found;
  for (const NormFinding& norm : report.norms) found[norm.path] = &norm;
  EXPECT_EQ(found.size(), want["norms"].size());
  for (const auto& [path, norm] : want["norms"].items()) {
    ASSERT_TRUE(found.contains(path)) << path;
    expect_norm(*found[path], norm);
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, InspectGolden, testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const auto& [name, value] : expected().items()) {
                             names.push_back(name);
                           }
                           return names;
                         }()),
                         [](const auto& row) { return row.param; });

TEST(Inspect, PlacementsOfTheReferenceCheckpoints) {
  const std::map<std::string, Placement> want = {{"minimind_f32", Placement::Pre},
                                                 {"gpt2_layernorm", Placement::Pre},
                                                 {"mpt_bias_free_layernorm", Placement::Pre},
                                                 {"llama_rmsnorm", Placement::Pre},
                                                 {"gemma2_one_plus_rmsnorm", Placement::Sandwich},
                                                 {"olmo2_post_norm", Placement::Output},
                                                 {"olmo_nonparametric_layernorm", Placement::Pre},
                                                 {"dyt_dynamic_tanh", Placement::Pre},
                                                 {"ambiguous_weight_only", Placement::Unknown}};
  for (const auto& [name, placement] : want) {
    SCOPED_TRACE(name);
    EXPECT_EQ(to_string(inspect_checkpoint(golden_path("checkpoints/" + name)).placement),
              to_string(placement));
  }
}

TEST(Inspect, TextGivesVerdictReasonsAndWhatWouldDecide) {
  const std::string text =
      to_text(inspect_checkpoint(golden_path("checkpoints/ambiguous_weight_only")));
  EXPECT_THAT(text, HasSubstr("layer_norm or rms_norm  undecidable"));
  EXPECT_THAT(text, HasSubstr("all: a gain without a shift"));
  EXPECT_THAT(text, HasSubstr("what would decide"));
  EXPECT_THAT(text, HasSubstr("rms_norm_eps, layer_norm_eps or norm_type"));
  EXPECT_THAT(text,
              HasSubstr("3 layer_norm or rms_norm. 3 undecidable, 0 with something unhealthy."));
  const std::string gemma =
      to_text(inspect_checkpoint(golden_path("checkpoints/gemma2_one_plus_rmsnorm")));
  EXPECT_THAT(gemma, HasSubstr("rms_norm, 1 + gain"));
  EXPECT_THAT(gemma, HasSubstr("gemma2/modeling_gemma2.py"));
  EXPECT_THAT(gemma, HasSubstr("placement sandwich"));
}

TEST(Inspect, JsonHasTheSame) {
  const auto value = to_json(inspect_checkpoint(golden_path("checkpoints/batchnorm_cnn")));
  EXPECT_EQ(value["model_type"], "cnn");
  EXPECT_EQ(value["norms"][0]["path"], "bn1");
  EXPECT_EQ(value["norms"][0]["kind"], "batch_norm");
  EXPECT_EQ(value["norms"][0]["trained"], true);
  EXPECT_EQ(value["norms"][0]["eps"], 1e-5);
  EXPECT_EQ(value["norms"][0]["reasons"].size(), 2U);
  EXPECT_TRUE(value["norms"][0]["per_head"].is_null());
}

}  // namespace
}  // namespace steady::examples::inspect
