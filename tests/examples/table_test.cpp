#include "examples/common/table.hpp"

#include <gtest/gtest.h>

#include <steadygrad/core/error.hpp>

namespace steady::examples {
namespace {

TEST(Table, AlignsNumbersRightAndWordsLeft) {
  Table table({"norm", "accuracy", "layer"});
  table.add_row({"batch", "99.12", "conv1"});
  table.add_row({"none", "8.5", "a µ"});
  table.add_row({"rms", "-", ""});
  EXPECT_EQ(table.str(),
            "norm   accuracy  layer\n"
            "-----  --------  -----\n"
            "batch     99.12  conv1\n"
            "none        8.5  a µ\n"
            "rms           -\n");
}

TEST(Table, RefusesARowOfAnotherLength) {
  Table table({"a", "b"});
  EXPECT_THROW(table.add_row({"1"}), Error);
}

}  // namespace
}  // namespace steady::examples
