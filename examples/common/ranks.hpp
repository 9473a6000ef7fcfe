#pragma once

#include <functional>
#include <string>

/// What a program does so that `mpirun -n P program ...` is one program: rank 0 alone prints, logs
/// and saves.
namespace steady::examples {

/// Finds the other ranks. Standard output of all but rank 0 goes nowhere from here on. Throws
/// Error, on every rank, when they were started with other arguments or are of other versions.
void join_ranks(int argc, const char* const* argv);

/// "4 ranks, each with its part of every batch\n", or nothing.
[[nodiscard]] std::string ranks_report();

/// The largest of what the ranks have.
[[nodiscard]] int largest_of_ranks(int mine);

/// Runs `f` on rank 0 and tells all whether it said yes.
[[nodiscard]] bool agreed_by_first_rank(const std::function<bool()>& f);

}  // namespace steady::examples
