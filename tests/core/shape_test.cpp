#include <gtest/gtest.h>

#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/shape.hpp>

namespace steady {
namespace {

TEST(Shape, CountsElementsAndRefusesOverflow) {
  EXPECT_EQ(Shape({65536, 65537}).numel(), 4295032832);  // CASES RT-13: 32 bits would give 65536
  const std::int64_t big = std::int64_t{1} << 32;
  EXPECT_THROW(Shape({big, big}), ShapeError);
  EXPECT_THROW(Shape({2, -1}), ShapeError);
  EXPECT_THROW(Shape({1, 1, 1, 1, 1, 1, 1, 1, 1}), ShapeError);
  EXPECT_EQ(Shape().numel(), 1);
  EXPECT_EQ(Shape({0, 5}).numel(), 0);
}

TEST(Shape, NegativeAxesCountFromTheEnd) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape[-1], 4);
  EXPECT_EQ(shape.axis(-3, "test"), 0);
  EXPECT_THROW((void)shape.axis(3, "test"), ShapeError);
  EXPECT_EQ(shape.without(1), Shape({2, 4}));
  EXPECT_EQ(shape.with(-1, 7), Shape({2, 3, 7}));
  EXPECT_EQ(to_string(shape), "[2, 3, 4]");
}

TEST(Shape, BroadcastsLikeNumpy) {
  EXPECT_EQ(broadcast_shapes({3, 1, 5}, {4, 1}, "add"), Shape({3, 4, 5}));
  EXPECT_EQ(broadcast_shapes({}, {2, 3}, "add"), Shape({2, 3}));
  EXPECT_EQ(broadcast_shapes({1}, {0}, "add"), Shape({0}));
  EXPECT_THROW((void)broadcast_shapes({2, 3}, {2}, "add"), ShapeError);
}

}  // namespace
}  // namespace steady
