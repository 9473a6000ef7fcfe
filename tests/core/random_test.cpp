#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/random.hpp>
#include <vector>

namespace steady {
namespace {

TEST(Random, ShufflesTheSameEverywhere) {  // CASES DA-10
  std::mt19937 engine(1);
  const auto order = random_permutation(10, [&] { return static_cast<std::uint32_t>(engine()); });
  EXPECT_THAT(order, testing::ElementsAre(0, 8, 2, 7, 6, 1, 3, 4, 9, 5));
}

TEST(Random, StreamsDependOnSeedAndNameAlone) {
  Random a(42, "conv1.weight");
  Random b(42, "conv1.weight");
  Random other_name(42, "conv2.weight");
  Random other_seed(43, "conv1.weight");
  (void)other_name.next_u64();
  const std::uint64_t first = a.next_u64();
  EXPECT_EQ(first, b.next_u64());
  EXPECT_NE(first, Random(42, "conv2.weight").next_u64());
  EXPECT_NE(first, other_seed.next_u64());
}

TEST(Random, WordsCanBeDrawnByIndex) {
  Random stream(7, "dropout");
  const Random indexed(7, "dropout");
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(stream.next_u32(), indexed.word(i));
}

TEST(Random, ManyWordsEqualSingleOnes) {
  const Random random(3, "words");
  for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{5}, std::uint64_t{3} << 36}) {
    std::vector<std::uint32_t> words(300);
    random.words(first, words);
    for (std::size_t i = 0; i < words.size(); ++i) EXPECT_EQ(words[i], random.word(first + i)) << i;
  }
}

TEST(Random, MomentsOfUniformAndNormal) {
  Random random(1, "moments");
  constexpr int N = 200000;
  double mean = 0;
  double square = 0;
  double fourth = 0;
  double uniform = 0;
  for (int i = 0; i < N; ++i) {
    const double x = random.normal();
    mean += x / N;
    square += x * x / N;
    fourth += x * x * x * x / N;
    const double u = random.uniform();
    ASSERT_TRUE(u >= 0 && u < 1);
    uniform += u / N;
  }
  EXPECT_NEAR(mean, 0, 5 / std::sqrt(N));
  EXPECT_NEAR(square, 1, 5 * std::sqrt(2.0 / N));
  EXPECT_NEAR(fourth, 3, 5 * std::sqrt(96.0 / N));
  EXPECT_NEAR(uniform, 0.5, 5 * std::sqrt(1.0 / 12 / N));
}

TEST(Random, BelowIsUniformAndChecked) {
  Random random(3, "below");
  std::vector<int> counts(7, 0);
  for (int i = 0; i < 70000; ++i) ++counts[static_cast<std::size_t>(random.below(7))];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
  EXPECT_THROW((void)random.below(0), Error);
}

}  // namespace
}  // namespace steady
