// stability_study under mpirun: its cells are shared among the ranks, its logs are those of one
// process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/distributed/world.hpp>

#include "tests/examples/study/logs.hpp"
#include "tests/examples/study/tiny_study.hpp"

namespace steady {
namespace {

using nlohmann::ordered_json;
using test::expect_same_numbers;
using test::logs_in;
using test::TinyStudy;
using testing::HasSubstr;
using testing_support::run_on_ranks;

TEST(StudyOnRanks, HasTheLogsOfOneProcess) {
  if (!distributed::has_mpi()) GTEST_SKIP() << "built without MPI";
  std::vector<ordered_json> cells;
  for (const char* norm : {"none", "batch", "layer"}) {
    cells.push_back(
        {{"model", "cnn"}, {"depth", 2}, {"width", 4}, {"norm", norm}, {"steps", 2}, {"batch", 8}});
  }
  const TinyStudy study(test::plan_of(cells));
  ASSERT_EQ(study.run("alone", "--progress off").code, 0);
  const auto shared =
      run_on_ranks(2, "stability_study", study.arguments("shared") + "--progress off --jobs 1");
  if (!shared) GTEST_SKIP() << "there is no mpirun of Open MPI";
  ASSERT_EQ(shared->code, 0) << shared->text;
  EXPECT_THAT(shared->text, HasSubstr("3 cells run, 0 kept from before, 0 failed"));
  expect_same_numbers(logs_in(study.out("alone")), logs_in(study.out("shared")));
  const auto again =
      run_on_ranks(3, "stability_study", study.arguments("shared") + "--progress off");
  EXPECT_THAT(again->text, HasSubstr("0 cells run, 3 kept from before, 0 failed"));
}

}  // namespace
}  // namespace steady
