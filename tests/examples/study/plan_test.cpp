// Plans: built-in ones, and files from anyone.
#include "examples/study/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <steadygrad/core/error.hpp>

#include "tests/core/data/files.hpp"
#include "tests/support/message_of.hpp"

namespace steady::examples {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A plan of one question, whose members are given.
std::string with_question(const std::string& members) {
  return R"({"name": "p", "questions": [{"id": "first", "title": "t", "figure": "loss", )" +
         members + "}]}";
}

std::string message(const std::string& plan) {
  const std::string text =
      testing_support::message_of([&] { (void)parse_plan(plan, "file.json"); });
  EXPECT_THAT(text, Not(HasSubstr("\n"))) << plan;
  EXPECT_LT(text.size(), 600U);
  return text;
}

TEST(StudyPlan, BuiltInPlansParseAndSurviveBeingWrittenOut) {
  ASSERT_EQ(plan_names().size(), 3U);
  for (const std::string_view name : plan_names()) {
    const Plan plan = load_plan(std::string(name));
    EXPECT_EQ(plan.name, name);
    const Plan again = parse_plan(to_json(plan).dump(), "again");
    ASSERT_EQ(again.questions.size(), plan.questions.size());
    for (std::size_t i = 0; i < plan.questions.size(); ++i) {
      EXPECT_EQ(again.questions[i].cells, plan.questions[i].cells);
      EXPECT_EQ(again.questions[i].vary, plan.questions[i].vary);
    }
    EXPECT_LE(again.cells().size(), 2000U);
  }
}

TEST(StudyPlan, TheFirstVariedKeyIsTheSlowest) {
  const Plan plan = parse_plan(
      with_question(R"("vary": {"norm": ["none", "rms"], "depth": [1, 2, 3]})"), "file.json");
  std::vector<std::string> order;
  for (const Cell& cell : plan.questions[0].cells) {
    order.push_back(cell.norm + std::to_string(cell.depth));
  }
  EXPECT_THAT(order, testing::ElementsAre("none1", "none2", "none3", "rms1", "rms2", "rms3"));
}

TEST(StudyPlan, JoinedKeysVaryTogether) {
  const Plan plan = parse_plan(
      with_question(
          R"("base": {"steps": 7}, "vary": {" placement ,warmup": [["pre", 0], ["post", 9]]})"),
      "file.json");
  const Question& q = plan.questions[0];
  EXPECT_THAT(q.vary, testing::ElementsAre("placement", "warmup"));
  ASSERT_EQ(q.cells.size(), 2U);
  EXPECT_EQ(q.cells[1].placement, "post");
  EXPECT_EQ(q.cells[1].warmup, 9);
  EXPECT_EQ(q.cells[1].steps, 7);
}

TEST(StudyPlan, ACellOfTwoQuestionsRunsOnce) {
  const Plan plan = parse_plan(
      R"({"name": "p", "questions": [
        {"id": "a", "title": "t", "figure": "loss", "cells": [{"depth": 1}, {"depth": 2}]},
        {"id": "b", "title": "t", "figure": "loss", "cells": [{"depth": 2}, {"depth": 3}]}]})",
      "file.json");
  EXPECT_EQ(plan.cells().size(), 3U);
}

TEST(StudyPlan, WhatIsNoPlanIsOneClearLine) {
  EXPECT_THAT(message("{"), HasSubstr("file.json: not JSON"));
  EXPECT_THAT(message(std::string(100'000, '[')), HasSubstr("file.json: nested too deeply"));
  EXPECT_THAT(message(R"({"name": 1e999})"), HasSubstr("file.json: not JSON"));
  EXPECT_THAT(message("\"\xff\""), HasSubstr("file.json: not JSON"));
  EXPECT_THAT(message("3"), HasSubstr("file.json: a plan is a JSON object"));
  EXPECT_THAT(message(R"({"questions": []})"), HasSubstr("file.json: needs a 'name'"));
  EXPECT_THAT(message(R"({"name": "x", "questions": []})"), HasSubstr("list of 'questions'"));
  EXPECT_THAT(message(R"({"name": "x", "question": []})"),
              HasSubstr("unknown key \"question\"; known are name, questions"));
  EXPECT_THAT(message(R"({"name": "x", "questions": [7]})"), HasSubstr("question 1: is an object"));
}

struct Hostile {
  const char* members;
  const char* key;
  const char* says;
};

TEST(StudyPlan, FaultsOfAQuestionNameItAndTheKey) {
  for (const Hostile& h : {
           Hostile{R"("bse": {})", "bse", "unknown key"},
           Hostile{R"("base": 3)", "cell", "is an object"},
           Hostile{R"("base": {"dept": 3})", "dept", "a cell has model, norm"},
           Hostile{R"("base": {"depth": "3"})", "'depth'", "needs an integer"},
           Hostile{R"("base": {"depth": 2.5})", "'depth'", "needs an integer"},
           Hostile{R"("base": {"depth": 0})", "'depth'", "[1, 1000]"},
           Hostile{R"("base": {"depth": -1})", "'depth'", "[1, 1000]"},
           Hostile{R"("base": {"depth": 99999999999999999999})", "'depth'", "needs an integer"},
           Hostile{R"("base": {"seed": 18446744073709551615})", "'seed'", "needs an integer in"},
           Hostile{R"("base": {"lr": -0.1})", "'lr'", "needs a number in [0, "},
           Hostile{R"("base": {"lr": null})", "'lr'", "needs a number"},
           Hostile{R"("base": {"init_scale": 1e300})", "'init_scale'", "needs a number in"},
           Hostile{R"("base": {"curvature": 1})", "'curvature'", "true or false"},
           Hostile{R"("base": {"norm": "bacth"})", "'norm'", "bacth"},
           Hostile{R"("base": {"norm": 4})", "'norm'", "needs text"},
           Hostile{R"("base": {"placement": "before"})", "'placement'", "before"},
           Hostile{R"("base": {"model": "rnn"})", "'model'", "residual_cnn"},
           Hostile{R"("base": {"optimizer": "adam"})", "'optimizer'", "adamw"},
           Hostile{R"("base": {"input": "white"})", "'input'", "standardize"},
           Hostile{R"("vary": [])", "'vary'", "is an object"},
           Hostile{R"("vary": {"depth": 3})", "'depth'", "needs a list"},
           Hostile{R"("vary": {"depth": []})", "'depth'", "needs a list"},
           Hostile{R"("vary": {"depth, lr": [3]})", "'depth, lr'", "lists of 2 values"},
           Hostile{R"("vary": {"depth, lr": [[3]]})", "'depth, lr'", "lists of 2 values"},
           Hostile{R"("vary": {"": [3]})", "\"\"", "unknown key"},
           Hostile{R"("cells": [])", "'cells'", "list of 1 to 2000"},
           Hostile{R"("cells": [{}], "base": {})", "'cells'", "not both"},
           Hostile{R"("cells": [{}], "varied": ["x"])", "'varied'", "unknown key \"x\""},
           Hostile{R"("cells": [{}], "varied": [3])", "question 1", "needs text"},
           Hostile{R"("text": 3)", "'text'", "needs text"},
           Hostile{R"("text": "\u001b[2J")", "'text'", "without control characters"},
           Hostile{R"("base": {"\u001b[2J": 1})", "\\u001b[2J", "unknown key"},
       }) {
    EXPECT_THAT(message(with_question(h.members)),
                AllOf(HasSubstr("file.json: question 1: "), HasSubstr(h.key), HasSubstr(h.says)));
  }
}

TEST(StudyPlan, LongValuesAreCutInMessages) {
  const std::string nines(10'000, '9');
  EXPECT_THAT(message(with_question(R"("base": {"model": ")" + nines + "\"}")), HasSubstr("..."));
}

TEST(StudyPlan, IdsNameFilesAndAreTakenOnce) {
  const auto with_id = [](const std::string& id) {
    return R"({"id": ")" + id + R"(", "title": "t", "figure": "loss"})";
  };
  const auto plan = [](const std::string& questions) {
    return R"({"name": "p", "questions": [)" + questions + "]}";
  };
  for (const char* id : {"../x", "a/b", "", "A", "a b", "\\u00e9", "."}) {
    EXPECT_THAT(message(plan(with_id(id))), HasSubstr("question 1: 'id' is made of a-z")) << id;
  }
  EXPECT_THAT(message(plan(with_id("a") + "," + with_id("a"))),
              HasSubstr("question 2: the id 'a' is taken"));
  EXPECT_THAT(message(plan(R"({"id": "a", "figure": "loss"})")), HasSubstr("needs 'title'"));
  EXPECT_THAT(message(plan(R"({"id": "a", "title": "t", "figure": "pie"})")),
              AllOf(HasSubstr("'figure': one of profile, loss"), HasSubstr("\"pie\"")));
}

TEST(StudyPlan, TooManyCellsAreRefusedBeforeTheyAreMade) {
  std::string numbers = "1";
  for (int i = 2; i <= 100; ++i) numbers += "," + std::to_string(i);
  const std::string list = "[" + numbers + "]";
  EXPECT_THAT(message(with_question(R"("vary": {"depth": )" + list + R"(, "width": )" + list +
                                    R"(, "batch": )" + list + "}")),
              HasSubstr("'width' makes more than 2000 cells"));
  const std::string thousand = R"("title": "t", "figure": "loss", "vary": {"depth": )" + list +
                               R"(, "width": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]})";
  std::string questions;
  for (const char* id : {"a", "b", "c"}) {
    questions +=
        std::string(questions.empty() ? "" : ",") + R"({"id": ")" + id + "\"," + thousand + "}";
  }
  EXPECT_THAT(message(R"({"name": "p", "questions": [)" + questions + "]}"),
              HasSubstr("question 3: the plan has more than 2000 cells"));
}

TEST(StudyPlan, FilesThatAreNoneAreOneClearLine) {
  const test::TemporaryDirectory directory;
  const auto load = [](const std::filesystem::path& path) {
    return testing_support::message_of([&] { (void)load_plan(path.string()); });
  };
  EXPECT_THAT(load(directory.path() / "missing"),
              AllOf(HasSubstr("missing"), HasSubstr("quick, default, full")));
  EXPECT_THAT(load(directory.path()), HasSubstr("nor a file that can be read"));
  EXPECT_THAT(load("/dev/zero"), HasSubstr("nor a file that can be read"));
  const auto large = directory.write("large", test::Bytes((1U << 22U) + 1, std::byte{' '}));
  EXPECT_THAT(load(large), HasSubstr("larger than a plan can be"));
  EXPECT_THAT(load(directory.write("empty", {})), HasSubstr("not JSON"));
}

TEST(StudyPlan, TheLargestPlanCanBeReadBack) {
  Plan plan{"large", {{"q", "t", "", "loss", {}, {}}}};
  for (std::uint64_t i = 0; i < 2000; ++i) {
    plan.questions[0].cells.push_back(
        {.model = "transformer", .norm = "batch(eps=1e-12)", .lr = 0.1 / 3, .seed = i});
  }
  const std::string text = to_json(plan).dump(1);
  EXPECT_LT(text.size(), std::size_t{1} << 20U);
  EXPECT_EQ(parse_plan(text, "large").cells(), plan.cells());
}

TEST(StudyCell, IdDiffersWithEveryMember) {
  const nlohmann::ordered_json other = {
      {"model", "mlp"},    {"norm", "rms"}, {"placement", "post"}, {"depth", 5},
      {"width", 17},       {"batch", 65},   {"steps", 101},        {"optimizer", "adamw"},
      {"lr", 0.010000001}, {"warmup", 1},   {"init", "torch"},     {"init_scale", 2.5},
      {"input", "raw"},    {"seed", 2},     {"curvature", true}};
  ASSERT_EQ(other.size(), to_json(Cell{}).size());
  std::set<std::string> ids{cell_id(Cell{})};
  for (const auto& [key, value] : other.items()) {
    const Cell cell = parse_cell(nlohmann::ordered_json{{key, value}}.dump());
    EXPECT_TRUE(ids.insert(cell_id(cell)).second) << key;
    EXPECT_EQ(parse_cell(to_json(cell).dump()), cell) << key;
  }
}

TEST(StudyCell, IdIsAFileNameThatStaysTheSame) {
  EXPECT_EQ(cell_id(Cell{}), "cnn-batch-pre-d4-w16-b64-lr0.01-s1-14b589f7");
  const std::string id = cell_id(parse_cell(
      R"json({"model": "transformer", "norm": "batch(eps=1e-12, momentum=0.25, affine=false)",
          "placement": "mix(post=0.5)", "lr": 1e6, "seed": 9223372036854775807
})json"));
  EXPECT_LE(id.size(), 200U);
  for (const char c : id) {
    EXPECT_TRUE(std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                std::string_view("-_.+").find(c) != std::string_view::npos)
        << id;
  }
}

}  // namespace
}  // namespace steady::examples
