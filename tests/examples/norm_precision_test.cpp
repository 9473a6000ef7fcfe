#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/examples/console.hpp"
#include "tests/support/programs.hpp"

namespace steady {
namespace {

using namespace testing_support;

/// The first number of the first row that starts with `label`: the error on normal numbers.
double error_of(const std::string& text, const std::string& label) {
  for (const std::string& line : test::split(text, '\n')) {
    if (line.rfind(label + " ", 0) == 0) return std::stod(line.substr(label.size()));
  }
  ADD_FAILURE() << "no row " << label << " in\n" << text;
  return -1;
}

TEST(NormPrecision, OrdersWhatLowPrecisionCosts) {
  const Outcome outcome = run_program("norm_precision", "");
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  for (const std::string norm : {"layer", "rms", "batch"}) {
    const double exact = error_of(outcome.text, norm + ", float32 kernel");
    EXPECT_LT(exact, 2e-6);
    for (const std::string format : {"bf16", "fp16"}) {
      const double unit = format == "bf16" ? 0x1p-8 : 0x1p-11;
      const auto of = [&](const std::string& options) {
        return error_of(outcome.text, norm + "(simulate=" + format + ", " + options + ")");
      };
      EXPECT_LT(of("cast=after"), 1.5 * unit) << norm;
      EXPECT_GT(of("cast=after"), 0.5 * unit) << norm;
      EXPECT_GT(of("cast=before"), 1.2 * of("cast=after")) << norm << " " << format;
      EXPECT_GT(of("accumulate=same"), of("cast=before")) << norm << " " << format;
    }
  }
}

}  // namespace
}  // namespace steady
