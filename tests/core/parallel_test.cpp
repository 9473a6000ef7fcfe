#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <numeric>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/parallel.hpp>
#include <string>
#include <thread>
#include <vector>

namespace steady {
namespace {

class Parallel : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_num_threads(GetParam()); }
  void TearDown() override { set_num_threads(before_); }

 private:
  int before_ = num_threads();
};

TEST_P(Parallel, VisitsEveryElementOnce) {
  std::vector<int> seen(1003, 0);
  parallel_for(1003, 10, [&](std::int64_t begin, std::int64_t end) {
    EXPECT_EQ(begin % 10, 0);
    for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
  });
  for (const int count : seen) EXPECT_EQ(count, 1);
}

TEST_P(Parallel, RethrowsTheFirstFailingChunkAndStaysUsable) {  // CASES RT-12
  for (int round = 0; round < 3; ++round) {
    try {
      parallel_for(10000, 100, [](std::int64_t begin, std::int64_t) {
        if (begin >= 4200) throw Error("chunk " + std::to_string(begin));
      });
      FAIL() << "no exception";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "chunk 4200");
    }
  }
}

TEST_P(Parallel, SumsInChunkOrderWhateverTheThreads) {  // CASES RT-01
  std::vector<float> values;
  for (int i = 0; i < 4000; ++i) values.insert(values.end(), {1e8F, 1.0F, -1e8F, 1.0F});
  const auto sum = [&] {
    return parallel_sum(static_cast<std::int64_t>(values.size()), 64, [&](auto begin, auto end) {
      double s = 0;
      for (auto i = begin; i < end; ++i)
        s += static_cast<double>(values[static_cast<std::size_t>(i)]);
      return s;
    });
  };
  EXPECT_EQ(sum(), 8000.0);
}

TEST_P(Parallel, NestedLoopsRunSerially) {
  std::vector<int> seen(64, 0);
  parallel_for(8, 1, [&](std::int64_t outer, std::int64_t) {
    parallel_for(8, 1, [&](std::int64_t inner, std::int64_t) {
      ++seen[static_cast<std::size_t>(outer * 8 + inner)];
    });
  });
  for (const int count : seen) EXPECT_EQ(count, 1);
}

TEST_P(Parallel, WorkersHaveIndicesBelowTheNumberOfThreads) {
  std::vector<int> index(1000, -1);
  parallel_for(1000, 1, [&](std::int64_t i, std::int64_t) {
    index[static_cast<std::size_t>(i)] = worker_index();
  });
  for (const int i : index) EXPECT_TRUE(i >= 0 && i < GetParam()) << i;
  EXPECT_EQ(worker_index(), 0);
}

TEST_P(Parallel, SeveralCallersAtOnceEachGetTheirOwnLoop) {
  std::vector<std::thread> callers;
  std::array<std::int64_t, 4> sums{};
  for (std::int64_t& sum : sums) {
    callers.emplace_back([&sum] {
      for (int round = 0; round < 200; ++round) {
        std::array<std::int64_t, 50> cells{};
        parallel_for(50, 1,
                     [&](std::int64_t i, std::int64_t) { cells[static_cast<std::size_t>(i)] = i; });
        sum += std::accumulate(cells.begin(), cells.end(), std::int64_t{0});
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_THAT(sums, testing::Each(200 * 50 * 49 / 2));
}

TEST_P(Parallel, ManyShortLoopsInARow) {
  std::int64_t total = 0;
  for (int round = 0; round < 20000; ++round) {
    std::array<std::int64_t, 4> cells{};
    parallel_for(4, 1, [&](std::int64_t i, std::int64_t) {
      cells[static_cast<std::size_t>(i)] = i + round;
    });
    total += std::accumulate(cells.begin(), cells.end(), std::int64_t{0});
  }
  EXPECT_EQ(total, 20000LL * 6 + 4LL * 20000 * 19999 / 2);
}

INSTANTIATE_TEST_SUITE_P(Threads, Parallel, testing::Values(1, 2, 3, 8));

// A fault on purpose: `tests/run.sh --threads` asks ThreadSanitizer for it first.
TEST(ParallelOptions, DISABLED_RaceThatTheSanitizerFinds) {
  set_num_threads(2);
  std::atomic<int> here{0};
  std::int64_t last = 0;
  parallel_for(2, 1, [&](std::int64_t i, std::int64_t) {
    here.fetch_add(1, std::memory_order_relaxed);
    while (here.load(std::memory_order_relaxed) < 2) std::this_thread::yield();
    last = i;
  });
  EXPECT_LT(last, 2);
}

TEST(ParallelOptions, RefusesNumbersOutOfRange) {
  EXPECT_THROW(set_num_threads(0), Error);
  EXPECT_THROW(set_num_threads(-3), Error);
  EXPECT_THROW(set_num_threads(MaxThreads + 1), Error);
}

}  // namespace
}  // namespace steady
