#include <steadygrad/core/distributed/world.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <steadygrad/core/error.hpp>

namespace steady::distributed {
namespace {

thread_local Communicator* used = nullptr;

Communicator& start() {
  const detail::Launch launch =
      detail::launch_of([](const char* name) -> const char* { return std::getenv(name); });
  STEADY_CHECK(
      Error, !launch.lonely,
      "world: Slurm started {} tasks that cannot find each other; use srun --mpi=pmix (srun "
      "--mpi=list shows what there is) or mpirun",
      launch.size);
  if (launch.launched) {
    if (has_mpi()) {
      Communicator& ranks = detail::start_mpi();
      STEADY_CHECK(Error, launch.size == 0 || ranks.size() == launch.size,
                   "world: the launcher started {} ranks, but MPI sees {}: the launcher belongs to "
                   "another MPI than the one this program was built with",
                   launch.size, ranks.size());
      return ranks;
    }
    STEADY_CHECK(Error, launch.size == 1 || (launch.size == 0 && launch.rank == 0),
                 "world: started as rank {} of {}, but steadygrad was built without MPI: apt-get "
                 "install libopenmpi-dev, then configure and build again",
                 launch.rank, launch.size);
  }
  static SingleProcess alone;
  return alone;
}

/// The number in a variable, or `otherwise`.
int number_in(const char* text, int otherwise) {
  int value = 0;
  if (text == nullptr) return otherwise;
  const auto [end, code] = std::from_chars(text, text + std::strlen(text), value);
  return code == std::errc() && *end == '\0' ? value : otherwise;
}

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; std::getline(in, word, '\n');) words.push_back(word);
  return words;
}

}  // namespace

Communicator& world() {
  if (used != nullptr) return *used;
  static Communicator& ranks = start();
  return ranks;
}

UseCommunicator::UseCommunicator(Communicator& communicator)
    : before_(std::exchange(used, &communicator)) {}
UseCommunicator::~UseCommunicator() { used = before_; }

void check_same_text(Communicator& communicator, std::string_view what, std::string_view text) {
  const std::vector<std::string> all = communicator.all_gather(text);
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    const std::vector<std::string> first = words_of(all[0]), other = words_of(all[r]);
    std::size_t i = 0;
    while (i < first.size() && i < other.size() && first[i] == other[i]) ++i;
    const auto word = [i](const std::vector<std::string>& words) {
      return i < words.size() ? "'" + words[i] + "'" : std::string("nothing");
    };
    throw Error(fmt::format("{} of rank {} is not that of rank 0: {} against {}", what, r,
                            word(other), word(first)));
  }
}

void on_first_rank(Communicator& communicator, const std::function<void()>& f) {
  if (communicator.size() == 1) {
    f();
    return;
  }
  std::string fault;
  if (communicator.rank() == 0) {
    try {
      f();
    } catch (const std::exception& error) {
      fault = communicator.broadcast(std::string_view(error.what()));
      throw;
    }
  }
  fault = communicator.broadcast(std::string_view(fault));
  if (!fault.empty()) throw Error(fault);
}

int fail(std::string_view line, int code) {
  if (!detail::fail_mpi(line, code)) {
    std::fflush(stdout);
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  }
  return code;
}

namespace detail {

Launch launch_of(const std::function<const char*(const char*)>& environment) {
  struct Names {
    const char* rank;
    const char* size;
  };
  constexpr std::array<Names, 3> Launchers{{{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                            {"PMI_RANK", "PMI_SIZE"},
                                            {"PMIX_RANK", "SLURM_STEP_NUM_TASKS"}}};
  for (const Names& names : Launchers) {
    const char* rank = environment(names.rank);
    if (rank == nullptr) continue;
    return {.rank = number_in(rank, 0),
            .size = number_in(environment(names.size), 0),
            .launched = true};
  }
  // sbatch and salloc set the size as well, a task of srun alone has a step of several.
  const int tasks = number_in(environment("SLURM_STEP_NUM_TASKS"), 1);
  const int task = number_in(environment("SLURM_PROCID"), 0);
  return {.rank = task, .size = tasks, .launched = false, .lonely = tasks > 1};
}

bool is_launch_variable(std::string_view name) {
  constexpr std::array<std::string_view, 7> Prefixes{"OMPI_", "PMIX_",      "PMI_", "ORTE_",
                                                     "PRTE_", "SLURM_STEP", "HYDI_"};
  return std::ranges::any_of(Prefixes,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace detail
}  // namespace steady::distributed
