#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <steadygrad/core/data/glyphs.hpp>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/parallel.hpp>

namespace steady {
namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  const auto x = a.data<float>();
  const auto y = b.data<float>();
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size_bytes()) == 0;
}

/// Label of the training image nearest to test image `i`.
std::int64_t nearest_label(const TrainTest& set, std::size_t i) {
  constexpr std::size_t Pixels = 784;
  const auto train = set.train.x.data<float>();
  const auto image = set.test.x.data<float>().subspan(i * Pixels, Pixels);
  float best = 1e30F;
  std::size_t at = 0;
  for (std::size_t j = 0; j * Pixels < train.size(); ++j) {
    float distance = 0.0F;
    for (std::size_t k = 0; k < Pixels; ++k) {
      const float d = train[j * Pixels + k] - image[k];
      distance += d * d;
    }
    if (distance < best) {
      best = distance;
      at = j;
    }
  }
  return set.train.y.data<std::int64_t>()[at];
}

TEST(Glyphs, HaveTheShapeAndRangeOfMnist) {
  const TrainTest set = make_glyphs({.train = 30, .test = 20, .mean = 0.0, .deviation = 1.0});
  EXPECT_EQ(set.train.x.shape(), Shape({30, 28, 28, 1}));
  EXPECT_EQ(set.test.x.shape(), Shape({20, 28, 28, 1}));
  EXPECT_EQ(set.test.y.data<std::int64_t>()[13], 3);
  const auto x = set.train.x.data<float>();
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  EXPECT_EQ(*low, 0.0F);
  EXPECT_GT(*high, 0.9F);
  EXPECT_LE(*high, 1.0F);
}

TEST(Glyphs, AreTheSameForAnyThreadCountAndNumberOfSamples) {
  const int before = num_threads();
  set_num_threads(1);
  const TrainTest reference = make_glyphs({.train = 300, .test = 10});
  for (const int threads : {2, 3, 8}) {
    set_num_threads(threads);
    EXPECT_TRUE(same_bits(make_glyphs({.train = 300, .test = 10}).train.x, reference.train.x));
  }
  set_num_threads(before);
  EXPECT_TRUE(
      same_bits(make_glyphs({.train = 50, .test = 10}).train.x, reference.train.first(50).x));
}

TEST(Glyphs, SeedsAndPartsDiffer) {
  const TrainTest one = make_glyphs({.train = 20, .test = 20, .seed = 1});
  const TrainTest two = make_glyphs({.train = 20, .test = 20, .seed = 2});
  EXPECT_FALSE(same_bits(one.train.x, two.train.x));
  EXPECT_FALSE(same_bits(one.train.x, one.test.x));
}

// A nearest neighbour among 1000 images is no classifier to be proud of; a network does better.
TEST(Glyphs, CanBeLearned) {
  const TrainTest set = make_glyphs({.train = 1000, .test = 100});
  int right = 0;
  for (std::size_t i = 0; i < 100; ++i) {
    right += nearest_label(set, i) == set.test.y.data<std::int64_t>()[i] ? 1 : 0;
  }
  EXPECT_GE(right, 90);
}

TEST(Glyphs, AnEmptyPartIsAnError) {
  EXPECT_THROW((void)make_glyphs({.train = 0}), Error);
  EXPECT_THROW((void)make_glyphs({.test = -1}), Error);
  EXPECT_THROW((void)make_glyphs({.train = 1, .test = 1, .deviation = 0.0}), Error);
}

}  // namespace
}  // namespace steady
