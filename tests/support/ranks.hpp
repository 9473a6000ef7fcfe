#pragma once

#include <functional>
#include <steadygrad/core/distributed/communicator.hpp>
#include <vector>

/// Ranks for tests: threads of this process, or the ranks that mpirun has started.
namespace steady::testing_support {

/// The numbers of ranks to test with: 2, 3 and 4; under mpirun that of the run.
[[nodiscard]] std::vector<int> rank_counts();

/// Runs `rank` on each of `size` ranks, with its communicator as distributed::world(): on as many
/// threads, or, under mpirun with `size` ranks, once in this process. What a rank throws ends the
/// others and is thrown here.
void on_ranks(int size, const std::function<void(distributed::Communicator&)>& rank);

}  // namespace steady::testing_support
