#include "examples/common/digits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/error.hpp>

#include "tests/core/data/files.hpp"

namespace steady::examples {
namespace {

using test::idx;
using test::TemporaryDirectory;
using testing::AllOf;
using testing::HasSubstr;

void write_mnist(const TemporaryDirectory& directory) {
  directory.write("train-images-idx3-ubyte", idx(0x08, {10, 2, 2}, 40));
  directory.write("train-labels-idx1-ubyte", idx(0x08, {10}, 10));
  directory.write("t10k-images-idx3-ubyte", idx(0x08, {5, 2, 2}, 20));
  directory.write("t10k-labels-idx1-ubyte", idx(0x08, {5}, 5));
}

TEST(Digits, AreMnistWhereItLies) {
  const TemporaryDirectory directory;
  write_mnist(directory);
  const Digits digits = load_digits({.directory = directory.path().string()});
  EXPECT_FALSE(digits.generated);
  EXPECT_THAT(digits.source, AllOf(HasSubstr(directory.path().string()),
                                   HasSubstr("10 training and 5 test images")));
  const Digits few = load_digits({.directory = directory.path().string(), .limit = 7});
  EXPECT_EQ(few.data.train.size(), 7);
  EXPECT_EQ(few.data.test.size(), 5);
}

TEST(Digits, AreGeneratedElsewhereAndSaySo) {
  const TemporaryDirectory directory;
  const Digits digits = load_digits({.directory = directory.path().string(), .limit = 20});
  EXPECT_TRUE(digits.generated);
  EXPECT_THAT(digits.source, AllOf(HasSubstr("generated"), HasSubstr("20 training and 20 test")));
  EXPECT_EQ(digits.data.train.x.shape(), Shape({20, 28, 28, 1}));
  EXPECT_THROW((void)load_digits({.directory = directory.path().string(), .required = true}),
               IoError);
  EXPECT_THROW((void)load_digits({.limit = -1}), Error);
}

TEST(Digits, AHalfBroughtMnistIsAnErrorNotAReplacement) {
  const TemporaryDirectory directory;
  write_mnist(directory);
  std::filesystem::remove(directory.path() / "t10k-labels-idx1-ubyte");
  EXPECT_THROW((void)load_digits({.directory = directory.path().string()}), IoError);
}

}  // namespace
}  // namespace steady::examples
