#include "tests/support/golden.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <steadygrad/core/error.hpp>

namespace steady::testing_support {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Golden, ReadsTensorsAttributesAndNames) {
  const Golden ops("ops.h5");
  const GoldenCase c = ops.group("/cat/dim1_three");
  EXPECT_EQ(c.name(), "dim1_three");
  EXPECT_EQ(c.attribute_int("dim"), 1);
  EXPECT_EQ(c.attribute_string("op"), "cat");
  EXPECT_EQ(c.attribute_int("missing", 7), 7);
  EXPECT_THAT(c.datasets("in"), ElementsAre("a", "b", "c"));
  EXPECT_EQ(c.tensor("in/c").shape(), (Shape{2, 3, 3}));
  EXPECT_EQ(c.tensor("in/c").dtype(), Dtype::F64);
  EXPECT_GT(c.float32_error("out/y"), -1.0);
  EXPECT_TRUE(c.has("in/a"));
  EXPECT_FALSE(c.has("param/bias"));
  EXPECT_EQ(ops.group("embedding/repeated_ids").tensor("in/ids").dtype(), Dtype::I64);
  EXPECT_THAT(ops.group("permute/2_0_1").attribute_ints("dims"), ElementsAre(2, 0, 1));
  EXPECT_EQ(ops.cases("softplus").size(), 3U);
}

TEST(Golden, ReadsTheOtherFiles) {
  EXPECT_EQ(Golden("norms.h5").cases("layer_norm").size(), 26U);
  EXPECT_EQ(Golden("optim.h5").cases("schedule").size(), 15U);
  const GoldenCase cnn = Golden("models.h5").group("cnn");
  EXPECT_TRUE(cnn.has("state/bn1.running_mean"));
  EXPECT_GT(cnn.group("step_0").datasets("grad").size(), 0U);
}

TEST(Golden, WhatIsMissingIsNamed) {
  EXPECT_THROW(Golden("none.h5"), IoError);
  const Golden ops("ops.h5");
  EXPECT_THROW((void)ops.cases("none"), IoError);
  try {
    (void)ops.group("add/row").tensor("in/none");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr("ops.h5:/add/row/in/none"));
  }
}

TEST(Golden, CloseRejectsWhatIsNotClose) {
  const Tensor want = Tensor::of({2}, {1.0, 100.0}, Dtype::F64);
  EXPECT_TRUE(close(Tensor::of({2}, {1.0 + 0.9e-8, 100.0}, Dtype::F64), want));
  EXPECT_FALSE(close(Tensor::of({2}, {1.0 + 1.1e-8, 100.0}, Dtype::F64), want));
  EXPECT_FALSE(close(Tensor::of({2}, {NAN, 100.0}, Dtype::F64), want));
  EXPECT_FALSE(close(Tensor::of({2, 1}, {1.0, 100.0}, Dtype::F64), want));
  EXPECT_FALSE(close(want, Tensor::of({2}, {NAN, 100.0}, Dtype::F64)));
  EXPECT_FALSE(close(want, Tensor::of({2}, {INFINITY, 100.0}, Dtype::F64)));
  EXPECT_TRUE(close(Tensor::of({1}, {NAN}, Dtype::F64), Tensor::of({1}, {NAN}, Dtype::F64)));
  EXPECT_FALSE(close(Tensor::of({1}, {1}, Dtype::I64), Tensor::of({1}, {2}, Dtype::I64)));
}

TEST(Golden, LayoutsConvertBothWays) {
  Tensor x = Tensor::empty({2, 3, 2, 5}, Dtype::F64);
  for (std::size_t i = 0; i < 60; ++i) x.mutable_data<double>()[i] = static_cast<double>(i);
  const Tensor y = nchw_to_nhwc(x);
  EXPECT_EQ(y.shape(), (Shape{2, 2, 5, 3}));
  EXPECT_EQ(y.data<double>()[1], 10.0);       // channel 1 of the first pixel
  EXPECT_EQ(y.data<double>()[30 + 3], 31.0);  // second image, second pixel
  EXPECT_TRUE(close(nhwc_to_nchw(y), x, 0.0));
}

}  // namespace
}  // namespace steady::testing_support
