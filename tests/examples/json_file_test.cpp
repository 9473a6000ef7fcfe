#include "examples/common/json_file.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <locale>
#include <steadygrad/core/error.hpp>

#include "tests/core/data/files.hpp"

namespace steady::examples {
namespace {

nlohmann::json read(const std::filesystem::path& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

TEST(JsonFile, WritesDoublesExactlyAndNanAsNull) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "run.json";
  const JsonFile file(path.string());
  file.write({{"train_loss", {0.1, 1234567.5, std::numeric_limits<double>::quiet_NaN()}}});
  const nlohmann::json value = read(path);
  EXPECT_EQ(value["train_loss"][0].get<double>(), 0.1);
  EXPECT_EQ(value["train_loss"][1].get<double>(), 1234567.5);
  EXPECT_TRUE(value["train_loss"][2].is_null());
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".part"));
}

// CASES RT-11.
TEST(JsonFile, DecimalCommaDoesNotReachTheFile) {
  struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "run.json";
  const std::locale before = std::locale::global(std::locale(std::locale(), new Comma));
  JsonFile(path.string()).write({{"a", 1234.5}, {"n", 60000}});
  const nlohmann::json value = read(path);
  std::locale::global(before);
  EXPECT_EQ(value["a"].get<double>(), 1234.5);
  EXPECT_EQ(value["n"].get<int>(), 60000);
}

TEST(JsonFile, AnUnwritablePlaceIsNoticedAtConstruction) {
  const test::TemporaryDirectory directory;
  EXPECT_THROW(JsonFile((directory.path() / "no" / "run.json").string()), IoError);
  EXPECT_THROW(JsonFile(directory.path().string()), IoError);
  EXPECT_NO_THROW(JsonFile("").write({{"a", 1}}));
}

}  // namespace
}  // namespace steady::examples
