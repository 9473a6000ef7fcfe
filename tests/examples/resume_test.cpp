// --save and --resume of the programs that train, from outside: stopped, killed and resumed they
// end with the files of a run that nothing disturbed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <steadygrad/core/data/markov.hpp>
#include <steadygrad/core/io/checkpoint_store.hpp>
#include <steadygrad/core/random.hpp>

#include "tests/core/io/checkpoint_testing.hpp"
#include "tests/support/programs.hpp"

namespace steady {
namespace {

using test::bytes_of_file;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::Outcome;
using testing_support::run_program;
using testing_support::RunningProgram;
namespace fs = std::filesystem;

/// A program with options that train for `steps` steps, in a directory of its own.
struct Trial {
  std::string program;
  std::string options;
  std::int64_t steps;
};

void PrintTo(const Trial& trial, std::ostream* out) { *out << trial.program; }

struct ResumeTest : testing::Test {
  test::TemporaryDirectory directory;
  fs::path text = directory.path() / "text.txt";
  Random random{29, "moments"};

  ResumeTest() {
    std::ofstream(text) << make_markov_text({.length = 4000, .alphabet = 4, .seed = 3}).text;
  }
  std::string at(const std::string& name) const { return (directory.path() / name).string(); }
  static fs::path final_file(const fs::path& place, std::int64_t steps) {
    return place / fmt::format("step-{:012}.h5", steps);
  }
  static std::int64_t newest_step(const fs::path& place) {
    return std::stoll(CheckpointStore(place).files().at(0).stem().string().substr(5));
  }
  std::string options_of(const Trial& trial) const {
    return trial.options + " --progress off --data no-such-directory" +
           (trial.program == "char_transformer" ? " --text " + text.string() : "");
  }
  nlohmann::json json_of(const std::string& name) const {
    nlohmann::json json;
    std::ifstream(directory.path() / name) >> json;
    for (const char* speed : {"images_per_second", "tokens_per_second"}) {
      json.erase(speed);
      for (auto& run : json["runs"]) run.erase(speed);
    }
    return json;
  }
  /// Runs until a checkpoint of at least `step` is there, then sends the signal. Again from the
  /// same place should the program end before.
  Outcome interrupted(const Trial& trial, const std::string& options, const fs::path& place,
                      std::int64_t step, int signal) const {
    const fs::path before = at("before");
    fs::remove_all(before);
    if (fs::exists(place)) fs::copy(place, before, fs::copy_options::recursive);
    for (int attempt = 0; attempt < 5; ++attempt) {
      RunningProgram program(trial.program, options_of(trial) + " " + options);
      const auto reached = [&] {
        const auto files = CheckpointStore(place).files();
        return !files.empty() && files[0] >= final_file(place, step);
      };
      while (program.runs() && !reached()) ::poll(nullptr, 0, 1);
      program.send(signal);
      Outcome outcome = program.wait();
      if (outcome.code != 0) return outcome;
      fs::remove_all(place);
      if (fs::exists(before)) fs::copy(before, place, fs::copy_options::recursive);
    }
    ADD_FAILURE() << "the program was never stopped in time";
    return {};
  }
};

struct ResumedTrial : ResumeTest, testing::WithParamInterface<Trial> {};

TEST_P(ResumedTrial, EndsAsIfNothingHadHappened) {  // CASES OP-09, OP-11, DA-09
  const Trial& trial = GetParam();
  const fs::path whole = at("whole");
  const fs::path resumed = at("resumed");
  const Outcome first =
      run_program(trial.program, options_of(trial) + " --threads 2 --save " + whole.string() +
                                     " --json " + at("whole.json"));
  ASSERT_EQ(first.code, 0) << first.text;
  // 50 steps and more are left after the last interruption.
  const std::int64_t stop = 1 + random.below(trial.steps - 60);
  const Outcome stopped = interrupted(trial, "--threads 1 --save-every 1 --save " + at("resumed"),
                                      resumed, stop, SIGTERM);
  EXPECT_EQ(stopped.code, 143) << stopped.text;
  EXPECT_THAT(stopped.text, HasSubstr(trial.program + ": stopped by SIGTERM after step "));
  EXPECT_THAT(stopped.text, HasSubstr("to go on: the same options with --resume " + at("resumed")));
  const Outcome killed = interrupted(trial, "--threads 2 --save-every 1 --resume " + at("resumed"),
                                     resumed, newest_step(resumed) + 3, SIGKILL);
  EXPECT_EQ(killed.code, -1) << killed.text;
  fs::copy(resumed, at("cold"), fs::copy_options::recursive);

  const Outcome last =
      run_program(trial.program, options_of(trial) + " --threads 1 --resume " + at("resumed") +
                                     " --json " + at("resumed.json"));
  EXPECT_EQ(last.code, 0) << last.text;
  EXPECT_THAT(last.text, HasSubstr("resumed from '" + at("resumed") + "/step-"));
  EXPECT_EQ(json_of("whole.json"), json_of("resumed.json"));
  const auto final_bytes = bytes_of_file(final_file(whole, trial.steps));
  ASSERT_FALSE(final_bytes.empty());
  EXPECT_TRUE(bytes_of_file(final_file(resumed, trial.steps)) == final_bytes);

  // The negative control: without its moments the optimizer goes elsewhere.
  const fs::path cold = CheckpointStore(at("cold")).files().at(0);
  Checkpoint state = load_checkpoint(cold);
  for (auto& [name, part] : state.parts) {
    if (name != "optimizer") continue;
    for (NamedTensor& t : part.tensors) {
      const bool moment = t.name.ends_with("exp_avg") || t.name.ends_with("momentum_buffer");
      if (moment) std::ranges::fill(t.value.mutable_data<float>(), 0.0F);
    }
  }
  save_checkpoint(cold, state);
  EXPECT_EQ(run_program(trial.program, options_of(trial) + " --resume " + at("cold")).code, 0);
  EXPECT_FALSE(bytes_of_file(final_file(at("cold"), trial.steps)) == final_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Programs, ResumedTrial,
    testing::Values(Trial{"mnist_cnn", "--limit 64 --epochs 16 --batch 12 --warmup 5", 80},
                    Trial{"char_transformer",
                          "--layers 2 --dim 16 --heads 2 --context 16 --batch 4 --steps 90 "
                          "--accumulate 2 --evaluate-every 20 --dropout 0.2 --sample 20 "
                          "--norm rms --warmup 10",
                          90}),
    [](const auto& param) { return param.param.program; });

constexpr const char* Tiny =
    "--layers 1 --dim 8 --heads 1 --context 8 --batch 2 --steps 30 --evaluate-every 10 --sample 5";

TEST_F(ResumeTest, SeveralRunsResumeWhereTheyWere) {
  const Trial trial{"char_transformer", std::string(Tiny) + " --norm layer --norm rms", 30};
  EXPECT_EQ(run_program(trial.program, options_of(trial) + " --json " + at("whole.json")).code, 0);
  const Outcome stopped =
      interrupted(trial, "--save-every 1 --save " + at("run"), at("run") + "/rms+pre", 3, SIGINT);
  EXPECT_EQ(stopped.code, 130) << stopped.text;
  EXPECT_EQ(final_file(at("run") + "/layer+pre", 30),
            CheckpointStore(at("run") + "/layer+pre").files().at(0));
  const Outcome last = run_program(trial.program, options_of(trial) + " --resume " + at("run") +
                                                      " --json " + at("resumed.json"));
  EXPECT_EQ(last.code, 0) << last.text;
  EXPECT_THAT(last.text, HasSubstr("after step 30\n"));
  EXPECT_EQ(json_of("whole.json"), json_of("resumed.json"));
}

TEST_F(ResumeTest, ADamagedNewestFileIsPassedOverAndNamed) {  // CASES H5-12
  const Trial trial{"char_transformer", Tiny, 30};
  const std::string save = options_of(trial) + " --save-every 10 --save " + at("run");
  EXPECT_EQ(run_program(trial.program, save).code, 0);
  const fs::path newest = final_file(at("run"), 30);
  const auto whole = bytes_of_file(newest);
  fs::resize_file(newest, fs::file_size(newest) / 2);
  const Outcome resumed = run_program(trial.program, options_of(trial) + " --resume " + at("run"));
  EXPECT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_THAT(resumed.text, AllOf(HasSubstr("step-000000000030.h5' is truncated: has "),
                                  HasSubstr("step-000000000020.h5' after step 20\n")));
  EXPECT_TRUE(bytes_of_file(newest) == whole);
}

TEST_F(ResumeTest, MisuseEndsInOneLineAndTouchesNothing) {
  const Trial trial{"char_transformer", Tiny, 30};
  const auto refusal = [&](const std::string& options, int code) {
    const Outcome outcome = run_program(trial.program, options_of(trial) + " " + options);
    EXPECT_EQ(outcome.code, code) << options << "\n" << outcome.text;
    const std::size_t line = outcome.text.rfind("char_transformer: ");
    if (line == std::string::npos) return outcome.text;
    EXPECT_EQ(std::count(outcome.text.begin() + static_cast<std::ptrdiff_t>(line),
                         outcome.text.end(), '\n'),
              1)
        << outcome.text;
    return outcome.text.substr(line);
  };
  EXPECT_THAT(refusal("--resume " + at("none"), 2), HasSubstr("there is no checkpoint in"));
  EXPECT_FALSE(fs::exists(at("none")));
  EXPECT_THAT(refusal("--norm rms --norm layer --save " + at("x.h5"), 2),
              HasSubstr("several runs need a directory"));
  EXPECT_THAT(refusal("--norm rms --norm rms --save " + at("x"), 2), HasSubstr("two runs have"));
  EXPECT_THAT(refusal("--save /proc/steady", 1), HasSubstr("/proc/steady"));
  EXPECT_THAT(refusal("--save-every 0", 2), HasSubstr("--save-every"));
  EXPECT_EQ(run_program(trial.program, options_of(trial) + " --save " + at("run.h5")).code, 0);
  const auto saved = bytes_of_file(at("run.h5"));
  EXPECT_THAT(refusal("--save " + at("run.h5"), 2), HasSubstr("go on with --resume " + at("run")));
  EXPECT_THAT(refusal("--lr 0.5 --no-bias --resume " + at("run.h5"), 1),
              AllOf(HasSubstr("does not fit this run"), HasSubstr("lr: here 0.5, there 0.002"),
                    HasSubstr("unexpected: "), HasSubstr("attn.c_attn.bias")));
  EXPECT_TRUE(bytes_of_file(at("run.h5")) == saved);
}

TEST_F(ResumeTest, AStopWithoutSaveIsCleanToo) {
  RunningProgram program("mnist_cnn", options_of({"mnist_cnn", "--epochs 1000", 0}));
  while (program.runs() && program.output().find("parameters,") == std::string::npos) {
    ::poll(nullptr, 0, 1);
  }
  program.send(SIGINT);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.code, 130) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("nothing is saved without --save\n"));
}

}  // namespace
}  // namespace steady
