// report from outside, on studies of a second.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <regex>

#include "tests/examples/study/logs.hpp"
#include "tests/examples/study/tiny_study.hpp"

namespace steady {
namespace {

using nlohmann::ordered_json;
using test::bytes_of;
using test::TinyStudy;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::Outcome;
using testing_support::run_program;

const ordered_json Mlp = {{"model", "mlp"}, {"depth", 2}, {"width", 8}, {"batch", 8}, {"steps", 8}};

ordered_json question(const std::string& id, const std::string& figure,
                      const std::vector<ordered_json>& changes, const ordered_json& varied) {
  ordered_json cells = ordered_json::array();
  for (const ordered_json& change : changes) {
    cells.push_back(Mlp);
    cells.back().update(change);
  }
  return {{"id", id},       {"title", "Title of " + id}, {"text", ""}, {"figure", figure},
          {"cells", cells}, {"varied", varied}};
}

/// Every kind of figure; runs that train, diverge and fail; equal labels; an axis with a zero.
ordered_json every_figure() {
  ordered_json depth =
      question("depth", "profile",
               {{{"seed", 1}}, {{"seed", 2}}, {{"lr", 0.02}}, {{"norm", "none"}}}, {"norm"});
  depth["title"] = "Depth <script>alert(1)</script>";
  depth["text"] = R"(<img src="http://example.com/a.png"> & 'more')";
  return {
      {"name", "tiny <b>"},
      {"questions",
       {depth,
        question("loss", "loss", {{{"seed", 1}}, {{"norm", "none"}, {"lr", 1e6}}}, {"norm", "lr"}),
        question("map", "stability", {{{"seed", 1}}, {{"lr", 0}}, {{"batch", 60000}}},
                 {"lr", "batch"}),
        question("batch", "batch", {{{"seed", 1}}, {{"batch", 60000}}}, {"batch"}),
        question("growth", "growth", {{{"steps", 0}, {"depth", 13}}}, {"norm"})}}};
}

std::vector<std::string> matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> all;
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) {
    all.push_back((*at)[1]);
  }
  return all;
}

/// The first tag that does not close the one before it, "" for balanced XML.
std::string unbalanced_tag(const std::string& xml) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([A-Za-z:]+)[^>]*?(/?)>");
  for (std::sregex_iterator at(xml.begin(), xml.end(), tag), end; at != end; ++at) {
    if ((*at)[3].length() > 0) continue;
    if ((*at)[1].length() == 0) {
      open.push_back((*at)[2]);
    } else if (open.empty() || open.back() != (*at)[2]) {
      return (*at)[0];
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : open.back();
}

void expect_one_line(const Outcome& outcome, const std::string& says) {
  EXPECT_EQ(outcome.code, 1) << outcome.text;
  EXPECT_EQ(std::ranges::count(outcome.text, '\n'), 1) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr(says));
}

TEST(Report, IsOnePageWithEveryFigureAndNoOutsideReference) {
  const TinyStudy study(every_figure());
  ASSERT_EQ(study.run("out", "--progress off").code, 0);
  const Outcome outcome = study.report("out");
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("verdict"), HasSubstr("first/last"),
                                  HasSubstr("report: " + (study.out() / "report.html").string())));
  const std::string page = bytes_of(study.out() / "report.html");
  for (const std::string& target :
       matches(page, "<[^>]*(?:src|href)\\s*=\\s*[\"']?([^\"' >]*)[^>]*>")) {
    EXPECT_TRUE(target.starts_with("#") || target.starts_with("data:")) << target;
  }
  EXPECT_THAT(matches(page, "(url\\(|@import|<script)"), testing::IsEmpty());
  EXPECT_THAT(page, AllOf(HasSubstr("Depth &lt;script&gt;alert(1)"), HasSubstr("tiny &lt;b&gt;"),
                          HasSubstr("&lt;img src=&quot;http"), Not(HasSubstr("<img"))));
  std::map<std::string, int> ids;
  for (const std::string& id : matches(page, "[ <]id=[\"']([^\"']*)[\"']")) {
    EXPECT_EQ(++ids[id], 1) << id;
  }
  for (const std::string& target : matches(page, "xlink:href=[\"']#([^\"']*)")) {
    EXPECT_TRUE(ids.contains(target)) << target;
  }
  EXPECT_THAT(matches(page, "(.{0,40}\\bnan\\b)"), testing::IsEmpty());
}

TEST(Report, PutsEachFigureBesideItAsWellFormedSvgAndCsv) {
  const TinyStudy study(every_figure());
  ASSERT_EQ(study.run("out", "--progress off").code, 0);
  ASSERT_EQ(study.report("out").code, 0);
  const std::string page = bytes_of(study.out() / "report.html");
  const std::vector<std::string> figures = matches(page, "<figure id=\"([^\"]*)\"");
  EXPECT_GE(figures.size(), 9U);
  for (const std::string& id : figures) {
    const std::string svg = bytes_of(study.out() / "figures" / (id + ".svg"));
    EXPECT_EQ(unbalanced_tag(svg), "") << id;
    EXPECT_THAT(svg, AllOf(HasSubstr("<svg"), HasSubstr("viewBox"), Not(HasSubstr("'black'"))));
    const std::string csv = bytes_of(study.out() / "figures" / (id + ".csv"));
    EXPECT_GE(std::ranges::count(csv, '\n'), 2) << id;
    const std::size_t header = csv.find('\n');
    EXPECT_EQ(std::count(csv.begin(), csv.begin() + std::ptrdiff_t(header), ','),
              2 + (id == "map-map"))
        << id;
  }
  EXPECT_EQ(matches(page, "(<svg)").size(), figures.size());
  EXPECT_EQ(matches(page, "(</svg>)").size(), figures.size());
}

TEST(Report, WritesTheFiguresOfOneQuestion) {
  const TinyStudy study(test::plan_of({Mlp}));
  ASSERT_EQ(study.run("out", "--progress off").code, 0);
  const Outcome only = study.report("out", "--only only");
  EXPECT_EQ(only.code, 0) << only.text;
  EXPECT_TRUE(std::filesystem::exists(study.out() / "figures" / "only-loss.svg"));
  EXPECT_FALSE(std::filesystem::exists(study.out() / "report.html"));
  expect_one_line(study.report("out", "--only other"), "no question 'other'");
}

TEST(Report, SaysHowManyCellsAreMissing) {
  const TinyStudy study(test::plan_of({Mlp}));
  ASSERT_EQ(study.run("out", "--progress off").code, 0);
  ordered_json plan = every_figure();
  const std::string text = plan.dump();
  std::ofstream(study.out() / "plan.json") << text;
  const Outcome outcome = study.report("out");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("cells have no log yet"));
  EXPECT_THAT(bytes_of(study.out() / "report.html"),
              HasSubstr("cells of the plan have no log yet"));
}

TEST(Report, NamesThePlanThatRemakesIt) {
  const TinyStudy study(test::plan_of({Mlp}));
  ASSERT_EQ(study.run("out", "--progress off").code, 0);
  ASSERT_EQ(study.report("out").code, 0);
  EXPECT_THAT(bytes_of(study.out() / "report.html"),
              HasSubstr("stability_study --plan " + (study.out() / "plan.json").string() +
                        " --out " + study.out().string()));
}

TEST(Report, WhatIsNoStudyIsOneLine) {
  const test::TemporaryDirectory directory;
  expect_one_line(run_program("report", "--out " + directory.path().string()), "no study is there");
  expect_one_line(run_program("report", "--out /no/such"), "no study is there");
}

TEST(Report, ADamagedLogIsNamed) {
  const TinyStudy study(test::plan_of({Mlp}));
  ASSERT_EQ(study.run("out", "--progress off").code, 0);
  const auto log = std::filesystem::directory_iterator(study.out() / "cells")->path();
  std::ofstream(log) << "no log";
  expect_one_line(study.report("out"), log.string());
}

TEST(Report, WithoutGnuplotNamesThePackage) {
  const TinyStudy study(test::plan_of({Mlp}));
  ASSERT_EQ(study.run("out", "--progress off").code, 0);
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nonexistent", 1);
  const Outcome outcome = study.report("out");
  ::setenv("PATH", path.c_str(), 1);
  expect_one_line(outcome, "apt-get install gnuplot-nox");
}

}  // namespace
}  // namespace steady
