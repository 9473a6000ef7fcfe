// The README's program does what it is there for: it learns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/support/programs.hpp"

namespace steady {
namespace {

TEST(FirstCnn, LearnsTheDigitsItDraws) {
  const testing_support::Outcome outcome = testing_support::run_program("first_cnn");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  const std::size_t end = outcome.text.find(" test images right");
  ASSERT_NE(end, std::string::npos) << outcome.text;
  const std::size_t begin = outcome.text.rfind('\n', end) + 1;  // 0 when there is none
  double right = 0;
  double all = 0;
  ASSERT_EQ(std::sscanf(outcome.text.c_str() + outcome.text.find_first_of("0123456789", begin),
                        "%lf of %lf", &right, &all),
            2)
      << outcome.text;
  EXPECT_GE(right, 0.95 * all);
}

}  // namespace
}  // namespace steady
