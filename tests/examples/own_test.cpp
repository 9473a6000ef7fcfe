#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/programs.hpp"

// The programs that show how to write a part of one's own: each checks itself.

namespace steady {
namespace {

using namespace testing_support;
using testing::HasSubstr;

class Own : public testing::TestWithParam<const char*> {};

TEST_P(Own, EndsWell) {
  const Outcome outcome = run_program(GetParam(), "");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
}

TEST_P(Own, IsShortEnoughToReadAtOnce) {
  std::ifstream file(STEADY_SOURCE_DIR "/examples/" + std::string(GetParam()) + ".cpp");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  ASSERT_FALSE(text.empty());
  EXPECT_LE(std::ranges::count(text, '\n'), 70);
}
INSTANTIATE_TEST_SUITE_P(Programs, Own,
                         testing::Values("own_op", "own_norm", "own_layer", "own_dataset"));

constexpr const char* List = "--list --plan " STEADY_SOURCE_DIR "/examples/plans/own_norm.json";

TEST(OwnNorm, IsKnownToTheStudyByName) {
  const Outcome outcome = run_program("own_norm", List);
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("mean_abs"));
}

TEST(OwnNorm, IsUnknownElsewhere) {
  const Outcome outcome = run_program("stability_study", List);
  EXPECT_NE(outcome.code, 0);
  EXPECT_THAT(outcome.text, HasSubstr("mean_abs"));
}

}  // namespace
}  // namespace steady
