// char_transformer from outside, on a text of a few kilobytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <steadygrad/core/data/markov.hpp>
#include <string>

#include "tests/support/programs.hpp"

namespace steady {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::Outcome;
using testing_support::run_program;

std::filesystem::path temporary(const std::string& name) {
  return std::filesystem::temp_directory_path() / ("steady_char_transformer_" + name);
}

class CharTransformer : public testing::Test {
 protected:
  void SetUp() override {
    const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
    text_ = temporary(test + ".txt");
    json_ = temporary(test + ".json");
    std::ofstream(text_) << make_markov_text({.length = 4000, .alphabet = 4, .seed = 3}).text;
  }
  void TearDown() override {
    std::filesystem::remove(text_);
    std::filesystem::remove(json_);
  }
  Outcome run(const std::string& options) {
    return run_program("char_transformer", "--text " + text_.string() +
                                               " --layers 2 --dim 16 --sample 20 --json " +
                                               json_.string() + " " + options);
  }
  nlohmann::json run_to_json(const std::string& options) {
    const Outcome result = run(options);
    EXPECT_EQ(result.code, 0) << result.text;
    nlohmann::json json;
    std::ifstream(json_) >> json;
    return json;
  }

  std::filesystem::path text_;
  std::filesystem::path json_;
};

constexpr const char* Short =
    "--heads 2 --context 16 --batch 4 --steps 12 --evaluate-every 6 --threads ";

TEST_F(CharTransformer, LossesAndSampleAreTheSameForAnyNumberOfThreads) {
  const nlohmann::json one =
      run_to_json(Short + std::string("1 --rope --kv-heads 1 --qk-norm rms"));
  EXPECT_EQ(one["train_loss"].size(), 12U);
  EXPECT_EQ(one["validation_loss"].size(), 2U);
  for (const char* threads : {"2", "3"}) {
    const nlohmann::json other =
        run_to_json(Short + std::string(threads) + " --rope --kv-heads 1 --qk-norm rms");
    for (const char* what : {"train_loss", "gradient_norm", "validation_loss", "sample"}) {
      EXPECT_EQ(one[what], other[what]) << what << " at " << threads << " threads";
    }
  }
}

TEST_F(CharTransformer, AccumulatedBatchesGiveTheBigBatch) {
  const nlohmann::json parts = run_to_json("--accumulate 2 --steps 1 --batch 4 --context 16");
  const nlohmann::json whole = run_to_json("--accumulate 1 --steps 1 --batch 8 --context 16");
  EXPECT_NEAR(parts["train_loss"][0].get<double>(), whole["train_loss"][0].get<double>(), 1e-6);
  EXPECT_NEAR(parts["gradient_norm"][0].get<double>(), whole["gradient_norm"][0].get<double>(),
              1e-5);
}

TEST_F(CharTransformer, TrainsEveryCombinationOfNormsAndPlacements) {
  const Outcome result =
      run(Short +
          std::string(
              "2 --norm rms --norm none --placement pre --placement 'mix(post=0.5)' --mlp swiglu "
              "--gate rezero --no-bias --top-k 3"));
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.text, AllOf(HasSubstr("== rms, pre =="), HasSubstr("== rms, mix(post=0.5) =="),
                                 HasSubstr("== none, pre =="), HasSubstr("validation loss"),
                                 HasSubstr("largest gradient norm"), HasSubstr("sample")));
  EXPECT_THAT(result.text, testing::Not(HasSubstr("\r")));  // CASES RT-10: not a terminal
  EXPECT_THAT(result.text, testing::Not(HasSubstr("\x1b")));
}

TEST_F(CharTransformer, ARunThatDivergesIsARowOfTheTable) {
  // What stops being finite: the weights in the last update, a gradient before its loss, the loss.
  for (const char* options : {"--steps 1 --lr 1e38", "--steps 30 --lr 30", "--steps 12 --lr 1e6"}) {
    const nlohmann::json json = run_to_json(
        "--norm none --norm layer --placement none --placement post --mlp relu --heads 2 "
        "--context 16 --batch 2 --warmup 0 --weight-decay 0 --clip 1e30 " +
        std::string(options));
    ASSERT_EQ(json["runs"].size(), 4U) << options;
    EXPECT_GE(json["runs"][0]["diverged_at"].get<int>(), 0) << options;
    EXPECT_EQ(json["runs"][0]["sample"], "") << options;
  }
}

TEST_F(CharTransformer, LearnsAnyFileByItsBytes) {
  std::ofstream(text_, std::ios::binary | std::ios::app) << "caf\xE9";
  const Outcome characters = run("--steps 1 --context 16");
  EXPECT_EQ(characters.code, 1) << characters.text;
  EXPECT_THAT(characters.text, HasSubstr("is not UTF-8 at byte 4003"));
  const nlohmann::json json =
      run_to_json("--bytes --steps 1 --context 16 --heads 2 --temperature 100");
  EXPECT_NEAR(json["train_loss"][0].get<double>(), std::log(256.0), 0.2);
}

TEST_F(CharTransformer, LearnsMoreThanCharacterFrequencies) {
  const nlohmann::json json = run_to_json("--steps 300 --context 16 --batch 8 --lr 1e-2");
  EXPECT_LT(json["validation_loss"][0].get<double>(), json["train_loss"][0].get<double>() - 0.4);
}

TEST_F(CharTransformer, BadOptionsEndInOneLineAndExitCode2) {
  for (const char* options :
       {"--norm bacth", "--placement before", "--gate open", "--qk-norm x", "--mlp tanh",
        "--heads 0", "--steps x", "--unknown", "--progress loud", "--dropout 1", "--prompt ~"}) {
    const Outcome result = run("--context 16 " + std::string(options));
    EXPECT_EQ(result.code, 2) << options << "\n" << result.text;
    EXPECT_EQ(std::ranges::count(result.text, '\n'), 1) << options << "\n" << result.text;
  }
}

TEST_F(CharTransformer, SizesThatDoNotFitEndInOneLine) {
  for (const char* options : {"--heads 3", "--kv-heads 5", "--context 100000"}) {
    const Outcome result = run(options);
    EXPECT_NE(result.code, 0) << options << "\n" << result.text;
    EXPECT_EQ(std::ranges::count(result.text, '\n'), 1) << options << "\n" << result.text;
  }
}

}  // namespace
}  // namespace steady
