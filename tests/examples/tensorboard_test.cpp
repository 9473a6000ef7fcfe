// --tensorboard of the training programs: the files that they leave say what --json says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <steadygrad/core/io/event_file.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/data/files.hpp"
#include "tests/support/event_messages.hpp"
#include "tests/support/programs.hpp"

namespace steady {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Key;
using testing::Not;
using testing_support::Outcome;
using testing_support::run_program;

constexpr const char* Mnist = "mnist_cnn --data no-such-directory --limit 200 --epochs 1 ";
constexpr const char* Characters =
    "char_transformer --data no-such-directory --layers 1 --dim 16 --heads 2 --context 16 --batch "
    "4 "
    "--steps 3 --evaluate-every 3 --sample 0 ";

struct Events {
  std::map<std::string, std::vector<std::pair<std::int64_t, float>>> scalars;  // step, value
  std::map<std::string, std::int64_t> histograms;                              // last step
};

/// From protoc's text: a line per field.
Events parse(const std::string& text) {
  Events events;
  std::int64_t step = 0;
  std::string tag;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, value;
    words >> name >> value;
    if (name == "step:") step = std::stoll(value);
    if (name == "tag:") tag = value.substr(1, value.size() - 2);
    if (name == "simple_value:") events.scalars[tag].emplace_back(step, std::stof(value));
    if (name == "histo") events.histograms[tag] = step;
  }
  return events;
}

class Tensorboard : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_event_files()) GTEST_SKIP() << "built without protobuf";
  }
  Outcome run(const std::string& command) const {
    const std::size_t name = command.find(' ');
    return run_program(command.substr(0, name), command.substr(name) + " --json '" +
                                                    (place_.path() / "run.json").string() + "'");
  }
  nlohmann::json json() const {
    return nlohmann::json::parse(std::ifstream(place_.path() / "run.json"));
  }
  std::string events() const { return (place_.path() / "events").string(); }

  test::TemporaryDirectory place_;
};

void expect_values(const Events& events, const std::string& tag, const nlohmann::json& values) {
  ASSERT_THAT(events.scalars, Contains(Key(tag)));
  const auto& seen = events.scalars.at(tag);
  ASSERT_EQ(seen.size(), values.size()) << tag;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].first, static_cast<std::int64_t>(i + 1)) << tag;
    EXPECT_EQ(seen[i].second, static_cast<float>(values[i].get<double>())) << tag;
  }
}

TEST_F(Tensorboard, MnistCnnWritesWhatItsJsonSays) {
  ASSERT_EQ(run(Mnist + ("--tensorboard '" + events() + "'")).code, 0);
  const Events seen = parse(testing_support::decoded_events(events()));
  const nlohmann::json result = json();
  expect_values(seen, "train/loss", result["train_loss"]);
  EXPECT_EQ(seen.scalars.at("train/learning_rate").size(), result["train_loss"].size());
  ASSERT_EQ(seen.scalars.at("test/accuracy").size(), 1U);
  EXPECT_EQ(seen.scalars.at("test/accuracy")[0].second,
            static_cast<float>(result["test_accuracy"][0].get<double>()));
  for (const char* weight : {"conv1.weight", "head.weight"}) {
    EXPECT_EQ(seen.scalars.at(std::string("gradient_norm/") + weight).size(),
              result["train_loss"].size());
    EXPECT_EQ(seen.histograms.at(std::string("parameters/") + weight), 1);
    EXPECT_EQ(seen.histograms.at(std::string("gradients/") + weight), 1);
  }
}

TEST_F(Tensorboard, CharTransformerWritesWhatItsJsonSays) {
  ASSERT_EQ(run(Characters + ("--tensorboard '" + events() + "'")).code, 0);
  const Events seen = parse(testing_support::decoded_events(events()));
  const nlohmann::json result = json();
  expect_values(seen, "train/loss", result["train_loss"]);
  expect_values(seen, "train/gradient_norm", result["gradient_norm"]);
  ASSERT_EQ(seen.scalars.at("validation/loss").size(), 1U);
  EXPECT_EQ(seen.scalars.at("validation/loss")[0].first, 3);
  EXPECT_THAT(seen.histograms, Contains(Key("gradients/transformer.wte.weight")));
}

TEST_F(Tensorboard, WatchingChangesNoNumberAndEachRunHasItsDirectory) {
  const std::string both = Characters + std::string("--norm layer --norm 'rms(eps=1e-5)' ");
  ASSERT_EQ(run(both).code, 0);
  const nlohmann::json plain = json();
  ASSERT_EQ(run(both + "--tensorboard '" + events() + "'").code, 0);
  EXPECT_EQ(plain["runs"][1]["train_loss"], json()["runs"][1]["train_loss"]);
  EXPECT_TRUE(std::filesystem::is_directory(events() + "/layer+pre"));
  EXPECT_TRUE(std::filesystem::is_directory(events() + "/rms(eps=1e-5)+pre"));
}

TEST_F(Tensorboard, APlaceThatCannotBeMadeEndsInOneLineBeforeTheTraining) {
  const Outcome outcome = run(Characters + std::string("--tensorboard /proc/no/such/place"));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("--tensorboard"), Not(HasSubstr("=="))));
}

TEST(TensorboardWithoutProtobuf, SaysWhatToInstall) {
  if (has_event_files()) GTEST_SKIP() << "built with protobuf";
  const Outcome outcome = run_program("char_transformer", "--tensorboard somewhere");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.text, HasSubstr("apt-get install libprotobuf-dev"));
}

}  // namespace
}  // namespace steady
