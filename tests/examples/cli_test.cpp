#include "examples/common/cli.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <clocale>
#include <locale>
#include <string>
#include <vector>

namespace steady::examples {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

struct CommandLine : testing::Test {
  CLI::App app{"Trains something."};
  double lr = 0.1;
  std::int64_t epochs = 3;
  std::string out;
  std::string err;

  CommandLine() {
    add_number(app, "--lr", lr, "learning rate", 0.0);
    add_number<std::int64_t>(app, "--epochs", epochs, "passes over the data", 1, 100);
  }

  int run(
      std::vector<const char*> arguments, const std::function<int()>& body = [] { return 0; }) {
    arguments.insert(arguments.begin(), "build/bin/program");
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = run_program(app, static_cast<int>(arguments.size()), arguments.data(), body);
    out = testing::internal::GetCapturedStdout();
    err = testing::internal::GetCapturedStderr();
    return code;
  }

  void expect_bad(const std::vector<const char*>& arguments, const std::string& what) {
    EXPECT_EQ(run(arguments), 2) << what;
    EXPECT_THAT(err, AllOf(StartsWith("program: "), HasSubstr(what), EndsWith("options)\n")));
    EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
    EXPECT_THAT(out, IsEmpty());
  }
};

TEST_F(CommandLine, ReadsNumbers) {
  EXPECT_EQ(run({"--lr", "1e-3", "--epochs=7"}, [] { return 5; }), 5);
  EXPECT_EQ(lr, 1e-3);
  EXPECT_EQ(epochs, 7);
}

TEST_F(CommandLine, ABadOptionOrValueIsOneLineAndExitCode2) {
  expect_bad({"--speed", "3"}, "--speed");
  expect_bad({"--lr"}, "--lr");
  expect_bad({"--lr", "fast"}, "--lr: 'fast' is not a number");
  expect_bad({"--lr", "0,1"}, "--lr: '0,1' is not a number");
  expect_bad({"--lr", "nan"}, "--lr: 'nan' is not a number");
  expect_bad({"--lr", "-1"}, "--lr: must be at least 0; got -1");
  expect_bad({"--epochs", "0"}, "--epochs: must be 1 to 100; got 0");
  expect_bad({"--epochs", "2.5"}, "--epochs: '2.5' is not a whole number");
  expect_bad({"--epochs", "99999999999999999999"}, "--epochs: must be 1 to 100");
  expect_bad({"--epochs", ""}, "--epochs: '' is not a whole number");
}

TEST_F(CommandLine, AnOptionRefusedLaterEndsTheSameWay) {
  const auto body = []() -> int {
    return checked_option("--norm", []() -> int { throw Error("norm: unknown 'foo'\nuse batch"); });
  };
  EXPECT_EQ(run({}, body), 2);
  EXPECT_EQ(err,
            "program: --norm: norm: unknown 'foo'; use batch (program --help shows the options)\n");
}

TEST_F(CommandLine, AnyOtherErrorIsOneLineAndExitCode1) {
  EXPECT_EQ(run({}, []() -> int { throw IoError("read_idx: 'x' does not exist"); }), 1);
  EXPECT_EQ(err, "program: read_idx: 'x' does not exist\n");
}

TEST_F(CommandLine, HelpShowsDefaultsAndEndsWithZero) {
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_THAT(out, AllOf(HasSubstr("--lr"), HasSubstr("0.1"), HasSubstr("passes over the data")));
  EXPECT_THAT(err, IsEmpty());
}

// CASES RT-11.
TEST_F(CommandLine, ALocaleWithDecimalCommaChangesNothing) {
  struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const std::locale before = std::locale::global(std::locale(std::locale(), new Comma));
  std::setlocale(LC_ALL, "de_DE.UTF-8");
  EXPECT_EQ(run({"--lr", "0.25", "--epochs", "12"}), 0);
  EXPECT_EQ(lr, 0.25);
  EXPECT_EQ(epochs, 12);
  expect_bad({"--lr", "0,25"}, "is not a number");
  std::setlocale(LC_ALL, "C");
  std::locale::global(before);
}

}  // namespace
}  // namespace steady::examples
