#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/examples/console.hpp"
#include "tests/support/programs.hpp"

namespace steady {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Outcome run(const std::string& arguments) { return run_program("gradcheck_norms", arguments); }

TEST(GradcheckNorms, EveryRowIsWithinItsLimits) {
  const Outcome outcome = run("");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr(" 0 failed"), Not(HasSubstr("FAILED"))));
  for (const char* norm : {"batch ",
                           "batch(momentum=cumulative) ",
                           "batch(track=false) ",
                           "layer ",
                           "layer(over=sample) ",
                           "prms(p=0.5) ",
                           "srms ",
                           "scale ",
                           "l2 ",
                           "dyt ",
                           "derf ",
                           "adanorm(detach=false) ",
                           "adaptive layer(affine=false) ",
                           "adaptive rms(affine=false) ",
                           "unit sphere update ",
                           "layer, two axes ",
                           "rms ",
                           "rms(unit_offset=true) ",
                           "weight_norm(conv) ",
                           "spectral_norm(conv) ",
                           "weight_standardization(conv) ",
                           "train",
                           "eval",
                           "frozen",
                           "weight, bias",
                           "none"}) {
    EXPECT_THAT(outcome.text, HasSubstr(norm));
  }
}

TEST(GradcheckNorms, AWrongBackwardEndsInFailure) {
  for (const std::string norm : {"batch", "layer", "rms"}) {
    const Outcome outcome = run("--mutate " + norm);
    EXPECT_EQ(outcome.code, 1) << norm;
    for (const std::string& line : test::split(outcome.text, '\n')) {
      const auto has = [&](const char* word) { return line.find(word) != std::string::npos; };
      if (!has(" train ") && !has(" eval ") && !has(" frozen ")) continue;
      const std::string name = line.substr(0, line.find("  "));
      EXPECT_EQ(has("FAILED"), name.find(norm) != name.npos) << line;
    }
  }
}

TEST(GradcheckNorms, ABadOptionIsOneLineAndExitCode2) {
  for (const char* arguments : {"--speed", "--mutate", "--mutate nonesuch"}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(std::count(outcome.text.begin(), outcome.text.end(), '\n'), 1) << outcome.text;
  }
}

}  // namespace
}  // namespace steady
