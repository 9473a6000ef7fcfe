#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/parallel.hpp>
#include <string>
#include <vector>

#include "examples/claims/claim.hpp"

namespace steady::examples::claims {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double Nan = std::numeric_limits<double>::quiet_NaN();

/// The verdict on one claim that only exists here.
Verdict judge_one(void (*run)(Findings&, std::uint64_t), std::vector<std::uint64_t> seeds) {
  const std::vector<Claim> claims{{"test", "nobody", "nothing", run}};
  return judge(claims, seeds).front();
}

TEST(Claims, ABandHoldsItsEndsAndNoNan) {
  EXPECT_TRUE((Band{1, 2}.contains(1)));
  EXPECT_TRUE((Band{1, 2}.contains(2)));
  EXPECT_FALSE((Band{1, 2}.contains(2.001)));
  EXPECT_FALSE(below(1).contains(Nan));
  EXPECT_FALSE(above(1).contains(Nan));
  EXPECT_TRUE(around(-2, 0.1).contains(-2.1));
  EXPECT_FALSE(around(-2, 0.1).contains(-2.3));
}

TEST(Claims, ABandReadsAsItsMeaning) {
  EXPECT_EQ(to_string(below(1e-3)), "< 0.001");
  EXPECT_EQ(to_string(above(20)), "> 20");
  EXPECT_EQ(to_string(Band{0.97, 1.04}), "0.97 .. 1.04");
  EXPECT_EQ(to_string(Band{1, 1}), "= 1");
}

TEST(Claims, ACheckHoldsOnlyWhenEverySeedIsInTheBand) {
  const auto run = [](Findings& f, std::uint64_t seed) {
    f.check("seed", 1, double(seed), {0, 2});
  };
  const Verdict good = judge_one(run, {0, 1, 2});
  EXPECT_TRUE(good.ok());
  EXPECT_EQ(good.rows[0].finding.measured, 1);
  EXPECT_EQ(good.rows[0].min, 0);
  EXPECT_EQ(good.rows[0].max, 2);
  EXPECT_FALSE(judge_one(run, {0, 1, 3}).ok());
}

TEST(Claims, AControlHasToMissItsBandWithEverySeed) {
  const auto run = [](Findings& f, std::uint64_t seed) { f.control("seed", double(seed), {0, 2}); };
  EXPECT_TRUE(judge_one(run, {3, 4}).ok());
  EXPECT_FALSE(judge_one(run, {3, 1}).ok());
}

TEST(Claims, ANanWithOneSeedShowsAndIsNotInTheBand) {
  const auto run = [](Findings& f, std::uint64_t seed) {
    f.check("measured", {}, seed == 1 ? Nan : 1, above(0));
  };
  for (const std::vector<std::uint64_t>& seeds : {std::vector<std::uint64_t>{0, 1}, {1, 0}}) {
    const Verdict verdict = judge_one(run, seeds);
    EXPECT_FALSE(verdict.ok());
    EXPECT_NE(verdict.rows[0].finding.measured, verdict.rows[0].finding.measured);
  }
}

TEST(Claims, EveryClaimHasAnIdOfItsOwnAndSaysWhoseItIs) {
  std::set<std::string_view> ids;
  for (const Claim& claim : all_claims()) {
    EXPECT_TRUE(ids.insert(claim.id).second) << claim.id;
    EXPECT_FALSE(claim.paper.empty()) << claim.id;
    EXPECT_FALSE(claim.sentence.empty()) << claim.id;
  }
}

TEST(Claims, SelectionKeepsTheOrderOfTheTableAndNamesTheKnownIds) {
  const std::vector<std::string> ids{"rank_collapse", "invariance"};
  std::vector<std::string_view> chosen;
  for (const Claim& claim : select_claims(ids)) chosen.push_back(claim.id);
  EXPECT_THAT(chosen, ElementsAre("invariance", "rank_collapse"));
  EXPECT_EQ(select_claims({}).size(), all_claims().size());
  try {
    (void)select_claims(std::vector<std::string>{"invariance", "nonesuch"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'nonesuch'"), HasSubstr("rank_collapse")));
  }
}

/// The claims that take well under a second, with their controls.
class FastClaim : public testing::TestWithParam<const char*> {};

TEST_P(FastClaim, HoldsAndItsControlsMiss) {
  const std::vector<std::string> ids{GetParam()};
  const std::vector<std::uint64_t> seeds{7};
  const Verdict verdict = judge(select_claims(ids), seeds).front();
  int checks = 0;
  int controls = 0;
  for (const Row& row : verdict.rows) {
    (row.finding.control ? controls : checks) += 1;
    EXPECT_TRUE(row.ok) << row.finding.what << ": " << row.finding.measured << ", "
                        << to_string(row.finding.band);
  }
  EXPECT_GE(checks, 1);
  EXPECT_GE(controls, 1);
}

INSTANTIATE_TEST_SUITE_P(Claims, FastClaim,
                         testing::Values("invariance", "smd_equilibrium", "rank_collapse",
                                         "postln_qk_vanish", "pre_rmsnorm_equiv",
                                         "curse_of_depth_angle", "input_scaling"),
                         [](const auto& claim) { return std::string(claim.param); });

TEST(Claims, NoResultDependsOnTheNumberOfThreads) {
  const std::vector<std::string> ids{"invariance", "rank_collapse"};
  const std::vector<std::uint64_t> seeds{3, 4};
  const int threads = num_threads();
  std::vector<std::vector<Verdict>> verdicts;
  for (const int n : {1, 3}) {
    set_num_threads(n);
    verdicts.push_back(judge(select_claims(ids), seeds));
  }
  set_num_threads(threads);
  for (std::size_t c = 0; c < ids.size(); ++c) {
    for (std::size_t i = 0; i < verdicts[0][c].rows.size(); ++i) {
      const Row& one = verdicts[0][c].rows[i];
      const Row& three = verdicts[1][c].rows[i];
      EXPECT_EQ(one.min, three.min) << one.finding.what;
      EXPECT_EQ(one.max, three.max) << one.finding.what;
    }
  }
}

}  // namespace
}  // namespace steady::examples::claims
