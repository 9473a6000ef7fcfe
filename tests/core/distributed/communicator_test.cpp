#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <steadygrad/core/distributed/world.hpp>
#include <steadygrad/core/error.hpp>

#include "tests/support/message_of.hpp"
#include "tests/support/ranks.hpp"

namespace steady::distributed {
namespace {

using testing::ElementsAre;
using testing_support::message_of;
using testing_support::on_ranks;
using testing_support::rank_counts;

TEST(DistributedCommunicator, GathersInRankOrder) {
  for (const int size : rank_counts()) {
    on_ranks(size, [&](Communicator& ranks) {
      EXPECT_EQ(ranks.size(), size);
      const std::vector<int> all = ranks.all_gather(10 * ranks.rank());
      ASSERT_EQ(std::ssize(all), size);
      for (int r = 0; r < size; ++r) EXPECT_EQ(all[static_cast<std::size_t>(r)], 10 * r);
      const std::string mine(static_cast<std::size_t>(3 * ranks.rank()), 'x');
      const std::vector<std::string> texts = ranks.all_gather(std::string_view(mine));
      for (std::size_t r = 0; r < texts.size(); ++r) EXPECT_EQ(texts[r].size(), 3 * r);
    });
  }
}

TEST(DistributedCommunicator, BroadcastsWhatTheRootHas) {
  for (const int size : rank_counts()) {
    on_ranks(size, [&](Communicator& ranks) {
      std::vector<double> values{1.0 + ranks.rank(), 2.0};
      ranks.broadcast(std::span(values), size - 1);
      EXPECT_THAT(values, ElementsAre(size, 2));
      const std::string text = "rank " + std::to_string(ranks.rank());
      EXPECT_EQ(ranks.broadcast(std::string_view(text), 1), "rank 1");
      ranks.barrier();
    });
  }
}

TEST(DistributedCommunicator, SumsInRankOrderInDouble) {
  for (const int size : rank_counts()) {
    on_ranks(size, [&](Communicator& ranks) {
      // 1e8 + 1 - 1e8 is 0 in float32; a sum of small terms first would be another number.
      std::vector<float> values(7);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = ranks.rank() == 0 ? 1e8F : ranks.rank() == 1 ? 1 + float(i) : -1e8F;
      }
      const std::vector<double> weights(static_cast<std::size_t>(size), 1.0);
      ranks.start_sum(std::span(values), weights)->wait();
      for (std::size_t i = 0; i < values.size(); ++i) {
        double want = 1e8;
        for (int r = 1; r < size; ++r) want += r == 1 ? 1.0 + double(i) : -1e8;
        EXPECT_EQ(values[i], float(want)) << "of " << size;
      }
    });
  }
}

TEST(DistributedCommunicator, LeavesOutRanksOfWeightZero) {
  for (const int size : rank_counts()) {
    on_ranks(size, [&](Communicator& ranks) {
      std::vector<double> weights(static_cast<std::size_t>(size), 0.0);
      weights[1] = 0.5;
      std::vector<double> values{ranks.rank() == 1 ? 6.0 : std::nan("")};
      ranks.start_sum(std::span(values), weights)->wait();
      EXPECT_EQ(values[0], 3.0);
    });
  }
}

TEST(DistributedCommunicator, HasSeveralSumsUnderWay) {
  for (const int size : rank_counts()) {
    on_ranks(size, [&](Communicator& ranks) {
      const std::vector<double> weights(static_cast<std::size_t>(size), 1.0);
      std::vector<std::vector<float>> values;  // among them fewer values than ranks, and none
      for (const std::size_t n : {100000U, 1U, 0U, 5000U, 3U}) values.emplace_back(n, 1.0F);
      std::vector<std::unique_ptr<Pending>> sums;
      for (auto& v : values) sums.push_back(ranks.start_sum(std::span(v), weights));
      std::vector<double> between{1.0};
      ranks.all_reduce(std::span(between));
      EXPECT_EQ(between[0], size);
      for (auto& sum : sums) sum->wait();
      for (const auto& v : values) {
        for (const float x : v) ASSERT_EQ(x, static_cast<float>(size));
      }
    });
  }
}

TEST(DistributedCommunicator, OfOneProcessNeedsNoBranches) {
  SingleProcess alone;
  EXPECT_EQ(alone.rank(), 0);
  EXPECT_EQ(alone.size(), 1);
  EXPECT_THAT(alone.all_gather(3.0), ElementsAre(3.0));
  std::vector<float> values{2, 4};
  alone.start_sum(std::span(values), std::vector{0.5})->wait();
  EXPECT_THAT(values, ElementsAre(1, 2));
  EXPECT_EQ(alone.broadcast(std::string_view("text")), "text");
  EXPECT_THROW(alone.broadcast(std::span(values), 1), Error);
  EXPECT_THROW((void)alone.start_sum(std::span(values), std::vector{1.0, 1.0}), ShapeError);
}

TEST(DistributedWorld, OfAThreadCanBeAnother) {
  SingleProcess alone;
  {
    const UseCommunicator use(alone);
    EXPECT_EQ(&world(), &alone);
  }
  EXPECT_NE(&world(), &alone);
}

TEST(DistributedWorld, NamesTheRankAndTheWordThatDiffers) {
  for (const int size : rank_counts()) {
    on_ranks(size, [&](Communicator& ranks) {
      EXPECT_NO_THROW(check_same_text(ranks, "the command line", "a\nb"));
      const std::string mine = ranks.rank() == 1 ? "--lr\n0.2" : "--lr\n0.1";
      const std::string message =
          message_of([&] { check_same_text(ranks, "the command line", mine); });
      EXPECT_EQ(message, "the command line of rank 1 is not that of rank 0: '0.2' against '0.1'");
    });
  }
}

TEST(DistributedWorld, ThrowsOnEveryRankWhatTheFirstThrows) {
  for (const int size : rank_counts()) {
    on_ranks(size, [&](Communicator& ranks) {
      int calls = 0;
      on_first_rank(ranks, [&] { ++calls; });
      EXPECT_EQ(calls, ranks.rank() == 0 ? 1 : 0);
      EXPECT_EQ(message_of([&] { on_first_rank(ranks, [] { throw IoError("full"); }); }), "full");
    });
  }
}

detail::Launch launch_with(const std::map<std::string, std::string>& variables) {
  return detail::launch_of([&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
}

TEST(DistributedWorld, KnowsItsLauncher) {
  EXPECT_FALSE(launch_with({}).launched);
  EXPECT_FALSE(launch_with({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}).launched);
  const auto open_mpi = launch_with({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_TRUE(open_mpi.launched);
  EXPECT_EQ(open_mpi.rank, 2);
  EXPECT_EQ(open_mpi.size, 4);
  EXPECT_TRUE(launch_with({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}).launched);
  EXPECT_TRUE(launch_with({{"PMIX_RANK", "1"}}).launched);
  // srun --mpi=none: several tasks, each of which would train alone.
  const auto lonely = launch_with({{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "3"}});
  EXPECT_FALSE(lonely.launched);
  EXPECT_TRUE(lonely.lonely);
  EXPECT_FALSE(launch_with({{"SLURM_STEP_NUM_TASKS", "1"}}).lonely);
}

TEST(DistributedWorld, KnowsWhatAChildMustNotInherit) {
  EXPECT_TRUE(detail::is_launch_variable("OMPI_COMM_WORLD_RANK"));
  EXPECT_TRUE(detail::is_launch_variable("PMIX_NAMESPACE"));
  EXPECT_FALSE(detail::is_launch_variable("OMP_NUM_THREADS"));
  EXPECT_FALSE(detail::is_launch_variable("PATH"));
}

}  // namespace
}  // namespace steady::distributed
