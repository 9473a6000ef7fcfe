#pragma once

#include <functional>
#include <steadygrad/core/distributed/communicator.hpp>
#include <string>
#include <string_view>

namespace steady::distributed {

/// The ranks of this run: those that mpirun or srun started, or one process alone. The first call
/// starts MPI where a launcher is at work; it ends with the program. While a UseCommunicator is
/// alive on the thread, its communicator.
///
/// From then on no rank ends without the others: an exception that nothing catches, and an exit
/// code that is not 0, end the whole run, with one line on standard error that says which rank and
/// why. Throws Error when a launcher started several ranks and they cannot find each other: the
/// library was built without MPI, or with another MPI than the launcher's.
[[nodiscard]] Communicator& world();

/// While alive, world() is another communicator on this thread.
class UseCommunicator {
 public:
  explicit UseCommunicator(Communicator& communicator);
  ~UseCommunicator();
  UseCommunicator(const UseCommunicator&) = delete;
  UseCommunicator& operator=(const UseCommunicator&) = delete;

 private:
  Communicator* before_;
};

/// Whether this library was built with MPI.
[[nodiscard]] bool has_mpi();

/// Throws Error, on all ranks, unless every rank has the same `text`: the rank, and the first word
/// that differs. `what` names it: "the command line".
void check_same_text(Communicator& communicator, std::string_view what, std::string_view text);

/// Runs `f` on rank 0 alone. What it throws is thrown on every rank: an Error of the same text
/// there.
void on_first_rank(Communicator& communicator, const std::function<void()>& f);

/// The end of a program that failed: prints `line` on standard error and returns `code`, for main
/// to return. With several ranks: when all of them fail within two seconds, a line that they have
/// in common is printed once; else `rank 2 of 4: line`, and the whole run ends here.
int fail(std::string_view line, int code);

namespace detail {

/// What the launchers of OpenMPI, MPICH, PMIx and Slurm tell a process in its environment.
struct Launch {
  int rank = 0;
  int size = 0;           ///< 0: not said, but a launcher is at work
  bool launched = false;  ///< a launcher with which MPI can find the other ranks
  bool lonely = false;    ///< one of several Slurm tasks, without a way to the others
};
[[nodiscard]] Launch launch_of(const std::function<const char*(const char*)>& environment);

/// Variables of a launcher, which a child that is no rank must not inherit.
[[nodiscard]] bool is_launch_variable(std::string_view name);

/// The communicator of MPI_COMM_WORLD, which lives as long as the process. Throws Error without MPI
/// in the build.
[[nodiscard]] Communicator& start_mpi();
/// fail() among the ranks of MPI; false: there is none.
bool fail_mpi(std::string_view line, int code);

}  // namespace detail
}  // namespace steady::distributed
