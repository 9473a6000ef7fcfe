#include <steadygrad/core/data/windows.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/random.hpp>
#include <vector>

#include "tests/core/data/files.hpp"

namespace steady {
namespace {

using test::message_of;
using testing::AllOf;
using testing::HasSubstr;

/// 0, 1, ... n-1: a token is its own place.
Tensor places(std::int64_t n) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(n));
  std::iota(ids.begin(), ids.end(), 0);
  return Tensor::from<std::int64_t>({n}, std::span<const std::int64_t>(ids));
}

/// The first token of every window from the epoch's `start` on.
std::vector<std::int64_t> begins(const Windows& epoch) {
  std::vector<std::int64_t> all;
  for (const Batch& batch : epoch) {
    for (std::int64_t r = 0; r < batch.x.dim(0); ++r) {
      all.push_back(batch.x.data<std::int64_t>()[static_cast<std::size_t>(r * batch.x.dim(1))]);
    }
  }
  return all;
}

TEST(Windows, TargetsAreTheTokensOneFurther) {
  for (const bool shuffle : {true, false}) {
    std::int64_t index = 0;
    for (const Batch& batch :
         windows(places(50), {.context = 8, .size = 3, .seed = 1, .shuffle = shuffle})) {
      EXPECT_EQ(batch.index, index++);
      EXPECT_EQ(batch.x.shape(), batch.y.shape());
      const auto x = batch.x.data<std::int64_t>();
      const auto y = batch.y.data<std::int64_t>();
      for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_EQ(y[i], x[i] + 1);
        const bool begins_row = i % static_cast<std::size_t>(batch.x.dim(1)) == 0;
        EXPECT_TRUE(begins_row || x[i] == x[i - 1] + 1);
        EXPECT_LT(y[i], 50);
      }
    }
    EXPECT_EQ(index, shuffle ? 2 : 3);
  }
}

TEST(Windows, AreDrawnFromAllPlaces) {
  std::set<std::int64_t> seen;
  for (std::int64_t epoch = 0; epoch < 100; ++epoch) {
    for (const std::int64_t begin :
         begins(windows(places(20), {.context = 4, .size = 2, .seed = 9, .epoch = epoch}))) {
      seen.insert(begin);
    }
  }
  EXPECT_EQ(seen.size(), 16U);
  EXPECT_EQ(*seen.begin(), 0);
  EXPECT_EQ(*seen.rbegin(), 15);
}

TEST(Windows, AreAFunctionOfSeedAndEpoch) {  // CASES DA-09
  const auto epoch = [](std::uint64_t seed, std::int64_t number, std::int64_t start = 0) {
    return begins(windows(
        places(200), {.context = 4, .size = 5, .seed = seed, .epoch = number, .start = start}));
  };
  const auto first = epoch(1, 2);
  Random other(1, "something else");
  (void)other.next_u64();
  EXPECT_EQ(epoch(1, 2), first);
  EXPECT_NE(epoch(1, 3), first);
  EXPECT_NE(epoch(2, 2), first);
  const auto rest = epoch(1, 2, 4);
  EXPECT_EQ(rest, std::vector<std::int64_t>(first.begin() + 20, first.end()));
}

TEST(Windows, InOrderEveryTargetComesOnceForAnyBatchSize) {  // CASES DA-11
  for (const std::int64_t n : {9, 10, 16, 17, 41, 50}) {
    for (const std::int64_t size : {1, 2, 3, 100}) {
      std::vector<std::int64_t> targets;
      const Windows cover = windows(places(n), {.context = 8, .size = size, .shuffle = false});
      std::int64_t batches = 0;
      for (const Batch& batch : cover) {
        const auto y = batch.y.data<std::int64_t>();
        targets.insert(targets.end(), y.begin(), y.end());
        EXPECT_LE(batch.y.dim(1), 8);
        ++batches;
      }
      EXPECT_EQ(batches, cover.count());
      std::vector<std::int64_t> want(static_cast<std::size_t>(n - 1));
      std::iota(want.begin(), want.end(), 1);
      EXPECT_EQ(targets, want) << n << " " << size;
    }
  }
}

TEST(Windows, NineTokensAreOneWindowOfEight) {  // CASES DA-08
  for (const bool shuffle : {true, false}) {
    const Windows one = windows(places(9), {.context = 8, .size = 1, .shuffle = shuffle});
    EXPECT_EQ(one.count(), 1);
    EXPECT_EQ(one.full_windows(), 1);
    EXPECT_EQ(one[0].x.data<std::int64_t>()[0], 0);
  }
}

TEST(Windows, ShardsMakeUpTheBatch) {
  for (const bool shuffle : {true, false}) {
    const Windows whole = windows(places(60), {.context = 8, .size = 3, .shuffle = shuffle});
    for (const std::int64_t size : {2, 4}) {
      for (std::int64_t i = 0; i < whole.count(); ++i) {
        std::vector<std::int64_t> tokens;
        for (std::int64_t rank = 0; rank < size; ++rank) {
          const Batch part = windows(
              places(60), {.context = 8, .size = 3, .shuffle = shuffle, .shard = {rank, size}})[i];
          EXPECT_EQ(part.x.dim(1), whole[i].x.dim(1));
          const auto x = part.x.data<std::int64_t>();
          tokens.insert(tokens.end(), x.begin(), x.end());
        }
        const Batch all = whole[i];
        EXPECT_TRUE(std::ranges::equal(tokens, all.x.data<std::int64_t>()))
            << size << " shards of batch " << i;
      }
    }
  }
  EXPECT_THROW((void)windows(places(60), {.context = 8, .shard = {1, 1}}), ShapeError);
}

TEST(Windows, SizesThatGiveNothingAreRefused) {  // CASES DA-08
  const auto refusal = [](const Tensor& tokens, const WindowOptions& options) {
    return message_of<ShapeError>([&] { (void)windows(tokens, options); });
  };
  EXPECT_THAT(refusal(places(5), {.context = 8}), AllOf(HasSubstr("at least 9"), HasSubstr("5")));
  EXPECT_THAT(refusal(places(8), {.context = 8, .shuffle = false}), HasSubstr("at least 9"));
  EXPECT_THAT(refusal(places(0), {.context = 8}), HasSubstr("got 0"));
  EXPECT_THAT(refusal(places(9), {.context = 8, .size = 2}), HasSubstr("at most 1"));
  EXPECT_THAT(refusal(places(9), {.context = 0}), HasSubstr("at least 1"));
  EXPECT_THAT(refusal(places(9), {.context = 8, .size = 0}), HasSubstr("at least 1"));
  EXPECT_THAT(refusal(places(90), {.context = 8, .size = 2, .start = 9}), HasSubstr("start"));
  EXPECT_THAT(refusal(Tensor::zeros({9}), {.context = 8}), HasSubstr("got f32 [9]"));
  const Windows fine = windows(places(90), {.context = 8, .size = 2});
  EXPECT_THROW((void)fine[fine.count()], ShapeError);
  EXPECT_THROW((void)fine[-1], ShapeError);
}

}  // namespace
}  // namespace steady
