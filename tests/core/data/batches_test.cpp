#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <steadygrad/core/data/batches.hpp>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/random.hpp>
#include <vector>

#include "tests/core/data/files.hpp"

namespace steady {
namespace {

using test::message_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

/// Sample i is the pair (2 i, 2 i + 1) with label i.
Dataset counting(std::int64_t n) {
  std::vector<float> x(static_cast<std::size_t>(2 * n));
  std::vector<std::int64_t> y(static_cast<std::size_t>(n));
  std::iota(x.begin(), x.end(), 0.0F);
  std::iota(y.begin(), y.end(), 0);
  return {Tensor::from<float>({n, 2}, x), Tensor::from<std::int64_t>({n}, y)};
}

std::vector<std::int64_t> labels(const Batches& epoch) {
  std::vector<std::int64_t> all;
  for (const Batch& batch : epoch) {
    const auto y = batch.y.data<std::int64_t>();
    all.insert(all.end(), y.begin(), y.end());
  }
  return all;
}

std::vector<std::int64_t> sizes(const Batches& epoch) {
  std::vector<std::int64_t> all;
  for (const Batch& batch : epoch) all.push_back(batch.size());
  return all;
}

TEST(Batches, EverySampleAppearsOnceAndKeepsItsLabel) {
  std::multiset<std::int64_t> seen;
  std::int64_t index = 0;
  for (const Batch& batch : batches(counting(23), {.size = 5, .seed = 7})) {
    EXPECT_EQ(batch.index, index);
    EXPECT_EQ(batch.first, 5 * index++);
    const auto x = batch.x.data<float>();
    const auto y = batch.y.data<std::int64_t>();
    for (std::size_t i = 0; i < y.size(); ++i) {
      EXPECT_EQ(x[2 * i], static_cast<float>(2 * y[i]));
      EXPECT_EQ(x[2 * i + 1], static_cast<float>(2 * y[i] + 1));
      seen.insert(y[i]);
    }
  }
  EXPECT_EQ(index, 5);
  EXPECT_EQ(seen.size(), 23U);
  EXPECT_EQ(std::set<std::int64_t>(seen.begin(), seen.end()).size(), 23U);
}

// CASES DA-09.
TEST(Batches, TheOrderIsAPureFunctionOfSeedAndEpoch) {
  const Dataset data = counting(20);
  const auto order = [&](std::uint64_t seed, std::int64_t epoch, std::int64_t start = 0) {
    return labels(batches(data, {.size = 4, .seed = seed, .epoch = epoch, .start = start}));
  };
  const auto second = order(5, 1);
  Random disturbance(5, "something else");
  (void)disturbance.permutation(1000);
  EXPECT_EQ(order(5, 1), second);
  EXPECT_NE(order(5, 0), second);
  EXPECT_NE(order(5, 2), second);
  EXPECT_NE(order(6, 1), second);
  EXPECT_EQ(order(5, 1, 3), std::vector<std::int64_t>(second.begin() + 12, second.end()));
  EXPECT_TRUE(order(5, 1, 5).empty());
}

TEST(Batches, WithoutShuffleTheOrderIsThatOfTheData) {
  EXPECT_THAT(labels(batches(counting(5), {.size = 2, .shuffle = false})),
              ElementsAre(0, 1, 2, 3, 4));
}

// CASES BN-05.
TEST(Batches, TheTailIsKeptDroppedOrMerged) {
  const Dataset data = counting(65);
  const Batches keep = batches(data, {.size = 64, .tail = Tail::Keep});
  EXPECT_THAT(sizes(keep), ElementsAre(64, 1));
  EXPECT_EQ(keep.smallest(), 1);
  const Batches drop = batches(data, {.size = 64, .tail = Tail::Drop});
  EXPECT_THAT(sizes(drop), ElementsAre(64));
  const Batches merge = batches(data, {.size = 64, .tail = Tail::Merge});
  EXPECT_THAT(sizes(merge), ElementsAre(65));
  EXPECT_EQ(merge.smallest(), 65);
  for (const Tail tail : {Tail::Keep, Tail::Drop, Tail::Merge}) {
    EXPECT_THAT(sizes(batches(counting(6), {.size = 3, .tail = tail})), ElementsAre(3, 3));
  }
}

TEST(Batches, ASetSmallerThanABatchIsOneBatch) {
  EXPECT_THAT(sizes(batches(counting(5), {.size = 64})), ElementsAre(5));
  EXPECT_THAT(sizes(batches(counting(5), {.size = 64, .tail = Tail::Merge})), ElementsAre(5));
}

// CASES DA-08: no batch is an error, not an empty loop.
TEST(Batches, NoBatchAtAllIsAnError) {
  EXPECT_THAT(
      message_of<ShapeError>([] { (void)batches(counting(5), {.size = 64, .tail = Tail::Drop}); }),
      AllOf(HasSubstr("5 samples"), HasSubstr("at most 5")));
  const Dataset empty{Tensor::zeros({0, 2}), Tensor::zeros({0}, Dtype::I64)};
  EXPECT_THROW((void)batches(empty), ShapeError);
}

TEST(Batches, BadOptionsAndDataThrow) {
  EXPECT_THROW((void)batches(counting(5), {.size = 0}), ShapeError);
  EXPECT_THROW((void)batches(counting(5), {.size = 2, .start = 4}), ShapeError);
  EXPECT_THROW((void)batches(counting(5), {.size = 2, .start = -1}), ShapeError);
  EXPECT_THROW((void)batches(counting(5), {.size = 2})[3], ShapeError);
  const Dataset unequal{Tensor::zeros({3, 2}), Tensor::zeros({2}, Dtype::I64)};
  EXPECT_THAT(message_of<ShapeError>([&] { (void)batches(unequal); }),
              AllOf(HasSubstr("[3, 2]"), HasSubstr("[2]")));
}

TEST(Batches, ShardsMakeUpTheBatch) {
  const Dataset data = counting(11);
  const Batches whole = batches(data, {.size = 4, .seed = 3});
  for (const std::int64_t size : {1, 2, 3, 5}) {
    for (std::int64_t i = 0; i < whole.count(); ++i) {
      std::vector<std::int64_t> labels;
      for (std::int64_t rank = 0; rank < size; ++rank) {
        const Batches part = batches(data, {.size = 4, .seed = 3, .shard = {rank, size}});
        ASSERT_EQ(part.count(), whole.count());
        EXPECT_EQ(part.size(i), whole.size(i)) << "of all shards";
        const Batch batch = part[i];
        EXPECT_EQ(batch.first, whole[i].first + std::ssize(labels));
        EXPECT_EQ(batch.x.dim(0), batch.size());
        EXPECT_LE(std::abs(batch.size() - whole.size(i) / size), 1);
        const auto y = batch.y.data<std::int64_t>();
        labels.insert(labels.end(), y.begin(), y.end());
      }
      EXPECT_THAT(labels, ElementsAreArray(whole[i].y.data<std::int64_t>())) << size << " shards";
    }
  }
  EXPECT_THROW((void)batches(data, {.shard = {2, 2}}), ShapeError);
  EXPECT_THROW((void)batches(data, {.shard = {-1, 2}}), ShapeError);
  EXPECT_THROW((void)batches(data, {.shard = {0, 0}}), ShapeError);
}

TEST(Dataset, FirstCopiesAndSharesOnlyWhenNothingIsCut) {
  const Dataset data = counting(6);
  const Dataset part = data.first(2);
  EXPECT_EQ(part.size(), 2);
  EXPECT_THAT(part.x.data<float>(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(part.y.data<std::int64_t>(), ElementsAre(0, 1));
  EXPECT_FALSE(part.x.shares_storage_with(data.x));
  EXPECT_TRUE(data.first(6).x.shares_storage_with(data.x));
  EXPECT_THROW((void)data.first(0), ShapeError);
}

}  // namespace
}  // namespace steady
