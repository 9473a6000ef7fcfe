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

using namespace testing_support;
using testing::AllOf;
using testing::HasSubstr;

Outcome run(const std::string& arguments) { return run_program("paper_claims", arguments); }

TEST(PaperClaims, ATableWithAVerdictPerRowAndAConclusion) {
  const Outcome outcome = run("--only invariance --seeds 2 --seed 100");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text,
              AllOf(HasSubstr("Zhang & Sennrich 2019"), HasSubstr("< 1e-10  ok"),
                    HasSubstr("not: no norm"), HasSubstr("misses, as it must"),
                    HasSubstr("1 claims hold, 0 miss; every one of 6 controls misses")));
}

TEST(PaperClaims, JsonHoldsWhatTheTableSays) {
  const std::filesystem::path file =
      std::filesystem::path(testing::TempDir()) / "paper_claims_test.json";
  const Outcome outcome =
      run("--only invariance --seeds 2 --seed 100 --json '" + file.string() + "'");
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  std::ifstream stream(file);
  const nlohmann::json json = nlohmann::json::parse(stream);
  EXPECT_EQ(json["seeds"], (std::vector<int>{100, 101}));
  ASSERT_EQ(json["claims"].size(), 1U);
  const nlohmann::json& claim = json["claims"][0];
  EXPECT_EQ(claim["id"], "invariance");
  EXPECT_EQ(claim["ok"], true);
  EXPECT_EQ(claim["checks"].size(), 5U);
  EXPECT_EQ(claim["controls"].size(), 6U);
  const nlohmann::json& check = claim["checks"][0];
  EXPECT_LE(check["min"], check["max"]);
  EXPECT_EQ(check["expected"], 0);
  EXPECT_TRUE(check["low"].is_null());  // no lower end
  EXPECT_EQ(check["high"], 1e-10);
  std::filesystem::remove(file);
}

TEST(PaperClaims, ABadOptionIsOneLineAndExitCode2) {
  for (const char* arguments : {"--speed", "--seeds 0", "--seeds many", "--seed -1", "--only"}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(std::count(outcome.text.begin(), outcome.text.end(), '\n'), 1) << outcome.text;
  }
}

TEST(PaperClaims, AnUnknownClaimNamesTheKnownOnes) {
  const Outcome outcome = run("--only nonesuch");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.text,
              AllOf(HasSubstr("nonesuch"), HasSubstr("invariance"), HasSubstr("bn_explosion")));
}

TEST(PaperClaims, AFileThatCannotBeWrittenIsSaidBeforeTheWork) {
  const Outcome outcome = run("--json /nonesuch/claims.json");
  EXPECT_EQ(outcome.code, 1) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("/nonesuch"));
}

}  // namespace
}  // namespace steady
