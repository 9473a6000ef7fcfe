// stability_study from outside, on networks of a few hundred weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "tests/examples/study/logs.hpp"
#include "tests/examples/study/tiny_study.hpp"

namespace steady {
namespace {

using nlohmann::ordered_json;
using test::logs_in;
using test::plan_of;
using test::result_of;
using test::TinyStudy;
using testing::HasSubstr;
using testing_support::Outcome;
using testing_support::run_program;

const ordered_json Mlp = {{"model", "mlp"}, {"depth", 2}, {"width", 8}, {"batch", 8}, {"steps", 8}};

ordered_json with(ordered_json cell, const ordered_json& changes) {
  cell.update(changes);
  return cell;
}

ordered_json six_cells() {
  return plan_of({with(Mlp, {{"norm", "none"}, {"curvature", true}}),
                  with(Mlp, {{"seed", 2}}),
                  with(Mlp, {{"model", "residual_mlp"}, {"norm", "rms"}, {"warmup", 4}}),
                  {{"model", "cnn"}, {"depth", 2}, {"width", 4}, {"batch", 8}, {"steps", 2}},
                  {{"model", "transformer"},
                   {"norm", "layer"},
                   {"depth", 1},
                   {"width", 8},
                   {"batch", 2},
                   {"steps", 2},
                   {"optimizer", "adamw"}},
                  with(Mlp, {{"norm", "none"}, {"lr", 1e6}, {"optimizer", "plain_sgd"}})});
}

/// The log of the only cell of a study.
RunRecord only_log(const TinyStudy& study) {
  const auto logs = logs_in(study.out("out"));
  EXPECT_EQ(logs.size(), 1U);
  return logs.begin()->second;
}

void expect_one_line(const Outcome& outcome, int code, const std::string& says) {
  EXPECT_EQ(outcome.code, code) << outcome.text;
  EXPECT_EQ(std::ranges::count(outcome.text, '\n'), 1) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr(says));
}

TEST(StabilityStudy, TheSamePlanGivesTheSameFilesForAnyNumberOfJobs) {
  const TinyStudy study(six_cells());
  const Outcome first = study.run("a", "--jobs 1 --progress off");
  EXPECT_EQ(first.code, 0);
  EXPECT_THAT(first.text, HasSubstr("6 cells run, 0 kept from before, 0 failed"));
  EXPECT_EQ(study.run("b", "--jobs 2").code, 0);
  const auto logs = logs_in(study.out("a"));
  ASSERT_EQ(logs.size(), 6U);
  for (const auto& [name, run] : logs) {
    EXPECT_TRUE(test::bytes_of(study.out("a") / "cells" / name) ==
                test::bytes_of(study.out("b") / "cells" / name))
        << name;
  }
  EXPECT_EQ(test::bytes_of(study.out("a") / "plan.json"),
            test::bytes_of(study.out("b") / "plan.json"));
}

TEST(StabilityStudy, TheNumbersAreTheSameForAnyNumberOfThreads) {
  const TinyStudy study(six_cells());
  EXPECT_EQ(study.run("one", "--threads 1").code, 0);
  EXPECT_EQ(study.run("two", "--threads 2 --jobs 1").code, 0);
  test::expect_same_numbers(logs_in(study.out("one")), logs_in(study.out("two")));
}

TEST(StabilityStudy, KeepsFinishedCellsUnlessForced) {
  const TinyStudy study(plan_of({Mlp}));
  EXPECT_THAT(study.run("out").text, HasSubstr("1 cells run, 0 kept"));
  const auto file = std::filesystem::directory_iterator(study.out() / "cells")->path();
  const auto written = std::filesystem::last_write_time(file);
  study.write_plan(plan_of({Mlp, with(Mlp, {{"seed", 2}})}));
  EXPECT_THAT(study.run("out").text, HasSubstr("1 cells run, 1 kept"));
  EXPECT_THAT(study.run("out").text, HasSubstr("0 cells run, 2 kept"));
  EXPECT_EQ(std::filesystem::last_write_time(file), written);
  EXPECT_THAT(study.run("out", "--force").text, HasSubstr("2 cells run, 0 kept"));
  EXPECT_NE(std::filesystem::last_write_time(file), written);
}

TEST(StabilityStudy, ADivergedCellNamesStepAndLayerAndIsKept) {
  const TinyStudy study(
      plan_of({with(Mlp, {{"norm", "none"}, {"lr", 1e6}}), with(Mlp, {{"lr", 1e6}}),
               with(Mlp, {{"norm", "none"}, {"init_scale", 1e6}, {"depth", 8}})}));
  EXPECT_THAT(study.run("out").text, HasSubstr("3 cells run, 0 kept from before, 0 failed"));
  const auto logs = logs_in(study.out());
  ASSERT_EQ(logs.size(), 3U);
  for (const auto& [name, run] : logs) {
    EXPECT_EQ(result_of(run, "status"), "diverged") << name;
    EXPECT_THAT(result_of(run, "first_non_finite"), testing::ContainsRegex("stage[0-9]|head"));
    EXPECT_EQ(std::to_string(run.find({"training", "step"})->step.back()),
              result_of(run, "diverged_at"))
        << name;
  }
  EXPECT_THAT(study.run("out").text, HasSubstr("0 cells run, 3 kept"));
}

TEST(StabilityStudy, ACellThatCannotRunIsRecordedWithItsReasonAndTriedAgain) {
  const TinyStudy study(plan_of({with(Mlp, {{"batch", 60000}}), Mlp}));
  const Outcome outcome = study.run("out");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.text, HasSubstr("2 cells run, 0 kept from before, 1 failed"));
  const auto logs = logs_in(study.out());
  ASSERT_EQ(logs.size(), 2U);
  const RunRecord& failed = std::ranges::find_if(logs, [](const auto& log) {
                              return log.first.find("b60000") != std::string::npos;
                            })->second;
  EXPECT_EQ(result_of(failed, "status"), "failed");
  EXPECT_THAT(result_of(failed, "reason"), HasSubstr("60000"));
  EXPECT_TRUE(failed.complete);
  EXPECT_THAT(study.run("out").text, HasSubstr("1 cells run, 1 kept from before, 1 failed"));
  EXPECT_EQ(logs_in(study.out()).size(), 2U);
}

TEST(StabilityStudy, AnUnreadableLogIsRunAgain) {
  const TinyStudy study(plan_of({Mlp}));
  EXPECT_EQ(study.run("out").code, 0);
  const auto file = std::filesystem::directory_iterator(study.out() / "cells")->path();
  const std::string whole = test::bytes_of(file);
  std::ofstream(file, std::ios::binary) << whole.substr(0, whole.size() / 2);
  EXPECT_THAT(study.run("out").text, HasSubstr("1 cells run, 0 kept"));
  EXPECT_TRUE(test::bytes_of(file) == whole);
}

TEST(StabilityStudy, StepsOfZeroLookAtTheInitialModelAlone) {
  const TinyStudy study(plan_of({with(Mlp, {{"steps", 0}})}, "growth"));
  EXPECT_EQ(study.run("out").code, 0);
  const RunRecord run = only_log(study);
  EXPECT_EQ(result_of(run, "status"), "initial");
  const RunSeries* gradient = run.find({"parameters", "stage1.linear.weight", "gradient"});
  ASSERT_NE(gradient, nullptr);
  EXPECT_EQ(gradient->step, std::vector<std::int64_t>{0});
  EXPECT_GT(gradient->column("rms")[0], 0.0);
}

TEST(StabilityStudy, CurvatureIsLoggedWhereItIsAskedForAndChangesNoOtherNumber) {
  const TinyStudy study(plan_of({with(Mlp, {{"curvature", true}})}));
  EXPECT_EQ(study.run("with").code, 0);
  const auto with = logs_in(study.out("with"));
  ASSERT_EQ(with.size(), 1U);
  const RunRecord& run = with.begin()->second;
  EXPECT_GT(std::stod(result_of(run, "sharpness")), 0.0);
  const RunSeries* along = run.find({"training", "along_gradient"});
  ASSERT_NE(along, nullptr);
  EXPECT_EQ(along->column("rate").size(), 5U);
  study.write_plan(plan_of({Mlp}));
  EXPECT_EQ(study.run("without").code, 0);
  const auto plain = logs_in(study.out("without"));
  ASSERT_EQ(plain.size(), 1U);
  EXPECT_EQ(result_of(run, "validation_loss"), result_of(plain.begin()->second, "validation_loss"));
}

TEST(StabilityStudy, ListsTheCellsWithoutRunningThem) {
  const TinyStudy study(six_cells());
  const Outcome outcome = study.run("out", "--list");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(std::ranges::count(outcome.text, '\n'), 7);
  EXPECT_FALSE(std::filesystem::exists(study.out()));
}

TEST(StabilityStudy, BadOptionsEndInOneLine) {
  const TinyStudy study(plan_of({with(Mlp, {{"steps", 0}})}));
  for (const char* options : {"--jobs 0", "--jobs x", "--threads 0", "--progress loud", "--unknown",
                              "--run-cell {", "--run-cell '{\"model\": \"x\"}'"}) {
    expect_one_line(study.run("out", options), 2, "--");
  }
  expect_one_line(run_program("stability_study", "--plan no/such"), 2, "no/such");
}

TEST(StabilityStudy, AnOutThatCannotBeWrittenEndsInOneLine) {
  const TinyStudy study(plan_of({Mlp}));
  std::ofstream(study.out("file")) << "a file";
  expect_one_line(study.run("file"), 1, study.out("file").string());
  expect_one_line(study.run("file/below"), 1, study.out("file/below").string());
  expect_one_line(run_program("stability_study", "--plan quick --out /proc/study"), 1, "/proc");
}

}  // namespace
}  // namespace steady
