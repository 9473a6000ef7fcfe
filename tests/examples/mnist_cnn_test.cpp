// mnist_cnn from outside: the generated data set stands in for MNIST.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/programs.hpp"

namespace steady {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::Outcome;
using testing_support::run_program;

constexpr const char* Small = "--data no-such-directory --limit 320 --epochs 1 ";

std::filesystem::path json_path(const std::string& name) {
  return std::filesystem::temp_directory_path() / ("steady_mnist_cnn_" + name + ".json");
}

nlohmann::json run_to_json(const std::string& name, const std::string& options) {
  const std::filesystem::path path = json_path(name);
  const Outcome result = run_program("mnist_cnn", Small + options + " --json " + path.string());
  EXPECT_EQ(result.code, 0) << result.text;
  nlohmann::json json;
  std::ifstream(path) >> json;
  std::filesystem::remove(path);
  return json;
}

TEST(MnistCnn, LossesAreTheSameForAnyNumberOfThreads) {
  const nlohmann::json one = run_to_json("1", "--norm batch --threads 1");
  EXPECT_EQ(one["train_loss"].size(), 5U);
  EXPECT_EQ(one["test_accuracy"].size(), 1U);
  for (const char* threads : {"2", "3"}) {
    const nlohmann::json other =
        run_to_json(threads, std::string("--norm batch --threads ") + threads);
    EXPECT_EQ(one["train_loss"], other["train_loss"]) << threads;
    EXPECT_EQ(one["gradient_rms"], other["gradient_rms"]) << threads;
    EXPECT_EQ(one["test_accuracy"], other["test_accuracy"]) << threads;
  }
}

TEST(MnistCnn, PrintsSummaryAccuracyGradientsAndComparison) {
  const Outcome result = run_program(
      "mnist_cnn", std::string(Small) + "--norm none --norm 'layer(over=sample)' --norm rms");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.text, AllOf(HasSubstr("generated digits"), HasSubstr("norm scale"),
                                 HasSubstr("test accuracy"), HasSubstr("layer(over=sample)"),
                                 HasSubstr("conv1 / head")));
  EXPECT_THAT(result.text, testing::Not(HasSubstr("\r")));  // CASES RT-10: not a terminal
  EXPECT_THAT(result.text, testing::Not(HasSubstr("\x1b")));
}

TEST(MnistCnn, BadOptionsEndInOneLineAndExitCode2) {
  for (const char* options :
       {"--norm bacth", "--norm 'batch(momentum=7)'", "--epochs 0", "--epochs x", "--lr -1",
        "--unknown", "--threads 0", "--progress loud"}) {
    const Outcome result = run_program("mnist_cnn", options);
    EXPECT_EQ(result.code, 2) << options << "\n" << result.text;
    EXPECT_EQ(std::ranges::count(result.text, '\n'), 1) << options << "\n" << result.text;
  }
}

}  // namespace
}  // namespace steady
