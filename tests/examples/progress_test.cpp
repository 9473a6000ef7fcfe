#include "examples/common/progress.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <steadygrad/core/error.hpp>

#include "tests/examples/console.hpp"

// CASES RT-10.
namespace steady::examples {
namespace {

using test::FakeConsole;
using test::split;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

void run(FakeConsole& fake, bool terminal, int steps, double seconds_per_step,
         Progress::Options options = {}) {
  Progress progress("epoch 1/3", steps, std::move(options), fake.console(terminal));
  for (int i = 0; i < steps; ++i) {
    fake.now += seconds_per_step;
    progress.step(64, {{"loss", 0.25}, {"accuracy", 0.9375}});
  }
}

TEST(Progress, ATerminalGetsOneLineRedrawnAtMostTenTimesASecond) {
  FakeConsole fake;
  run(fake, true, 1'000'000, 1e-5);  // ten seconds
  const std::string text = fake.out.str();
  const auto redraws = std::count(text.begin(), text.end(), '\r');
  EXPECT_GE(redraws, 90);
  EXPECT_LE(redraws, 102);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, EndsWith("\n"));
}

TEST(Progress, ShowsMetricsSpeedAndTimeLeft) {
  FakeConsole fake;
  fake.width = 120;
  run(fake, true, 4, 0.5);
  const auto lines = split(fake.out.str(), '\r');
  ASSERT_EQ(lines.size(), 5U);  // nothing, three redraws, the end
  EXPECT_EQ(lines[2],
            "epoch 1/3 [############............]  50%  2/4  loss 0.2500  accuracy 0.9375"
            "  128 images/s  1s left");
  EXPECT_THAT(lines[4], AllOf(HasSubstr("[########################] 100%  4/4"),
                              HasSubstr("128 images/s  in 2s")));
}

TEST(Progress, ALoopThatGoesOnCountsFromWhereItWas) {
  FakeConsole fake;
  fake.width = 120;
  run(fake, true, 4, 0.5, {.done = 0});
  FakeConsole resumed;
  resumed.width = 120;
  Progress progress("epoch 1/3", 4, {.done = 2}, resumed.console(true));
  resumed.now += 0.5;
  progress.step(64, {{"loss", 0.25}, {"accuracy", 0.9375}});
  EXPECT_EQ(split(resumed.out.str(), '\r').at(1), split(fake.out.str(), '\r').at(3));
}

TEST(Progress, NeverFillsANarrowTerminal) {
  for (const int width : {1, 2, 20, 60, 90}) {
    FakeConsole fake;
    fake.width = width;
    run(fake, true, 50, 0.2);
    for (const std::string& line : split(split(fake.out.str(), '\n').front(), '\r')) {
      EXPECT_LT(line.size(), static_cast<std::size_t>(std::max(width, 2)));
    }
  }
}

TEST(Progress, AShorterLineWipesTheLongerOneBefore) {
  FakeConsole fake;
  fake.width = 200;
  Progress progress("t", 3, {}, fake.console(true));
  fake.now += 1;
  progress.step(1, {{"a_metric_with_a_very_long_name", 1.0}});
  fake.now += 1;
  progress.step(1);
  const auto lines = split(fake.out.str(), '\r');
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[2].size(), lines[1].size());
  EXPECT_EQ(lines[2].back(), ' ');
}

TEST(Progress, APipeGetsFewPlainLinesWithoutControlCharacters) {
  FakeConsole fake;
  run(fake, false, 1'000'000, 1e-2);  // 10,000 seconds: the percent rule binds
  const std::string text = fake.out.str();
  EXPECT_THAT(text, AllOf(Not(HasSubstr("\r")), Not(HasSubstr("\x1b")), EndsWith("\n")));
  const auto lines = split(text, '\n');
  EXPECT_GE(lines.size(), 99U);
  EXPECT_LE(lines.size(), 101U);
  EXPECT_THAT(lines.back(), AllOf(StartsWith("epoch 1/3"), HasSubstr("100%  1000000/1000000")));
}

TEST(Progress, AQuickLoopInALogIsOneLine) {
  FakeConsole fake;
  run(fake, false, 1000, 1e-3);
  EXPECT_EQ(split(fake.out.str(), '\n').size(), 1U);
  FakeConsole slower;
  run(slower, false, 1000, 0.022);  // 22 seconds: a line every 5, then the last
  EXPECT_EQ(split(slower.out.str(), '\n').size(), 5U);
}

TEST(Progress, TheOptionOverridesBothWays) {
  FakeConsole piped;
  run(piped, false, 10, 1.0, {.mode = ProgressMode::Bar});
  EXPECT_THAT(piped.out.str(), HasSubstr("\r"));
  FakeConsole terminal;
  run(terminal, true, 10, 1.0, {.mode = ProgressMode::Plain});
  EXPECT_THAT(terminal.out.str(), AllOf(Not(HasSubstr("\r")), HasSubstr("100%")));
  FakeConsole off;
  run(off, true, 10, 1.0, {.mode = ProgressMode::Off});
  EXPECT_THAT(off.out.str(), IsEmpty());
  EXPECT_EQ(parse_progress_mode("plain"), ProgressMode::Plain);
  EXPECT_THROW((void)parse_progress_mode("fancy"), Error);
}

TEST(Progress, AnInterruptedLoopStillEndsItsLine) {
  FakeConsole fake;
  try {
    Progress progress("epoch", 10, {}, fake.console(true));
    progress.step(64);
    throw Error("interrupted");
  } catch (const Error&) {
  }
  EXPECT_THAT(fake.out.str(), AllOf(HasSubstr("1/10"), EndsWith("\n")));
}

TEST(Progress, ADumbTerminalIsNotRedrawn) {
  EXPECT_TRUE(can_redraw(true, "xterm"));
  EXPECT_FALSE(can_redraw(false, "xterm"));
  EXPECT_FALSE(can_redraw(true, "dumb"));
  EXPECT_FALSE(can_redraw(true, ""));
  EXPECT_FALSE(can_redraw(true, nullptr));
}

TEST(Progress, FormatsDurations) {
  EXPECT_EQ(format_duration(7.4), "7s");
  EXPECT_EQ(format_duration(65.0), "1:05");
  EXPECT_EQ(format_duration(7384.0), "2:03:04");
  EXPECT_EQ(format_duration(-1.0), "?");
}

}  // namespace
}  // namespace steady::examples
