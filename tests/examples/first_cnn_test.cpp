// The README's program does what it is there for: it learns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "tests/support/programs.hpp"

namespace steady {
namespace {

TEST(FirstCnn, LearnsTheDigitsItDraws) {
  const testing_support::Outcome outcome = testing_support::run_program("first_cnn");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  std::smatch match;
  ASSERT_TRUE(
      std::regex_search(outcome.text, match, std::regex("(\\d+) of (\\d+) test images right")))
      << outcome.text;
  EXPECT_GE(std::stod(match[1]), 0.95 * std::stod(match[2]));
}

}  // namespace
}  // namespace steady
