#include "examples/common/ranks.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <span>
#include <steadygrad/core/distributed/world.hpp>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/library_report.hpp>
#include <vector>

namespace steady::examples {

using distributed::world;

void join_ranks(int argc, const char* const* argv) {
  if (world().size() == 1) return;
  if (world().rank() > 0) {
    STEADY_CHECK(Error, std::freopen("/dev/null", "w", stdout) != nullptr, "/dev/null: no access");
  }
  std::string words;
  for (int i = 1; i < argc; ++i) words += std::string(argv[i]) + "\n";
  distributed::check_same_text(world(), "the command line", words);
  for (const auto& [name, value] : library_facts()) {
    if (name == "steadygrad" || name == "libraries") {
      distributed::check_same_text(world(), "the version", name + " " + value);
    }
  }
}

std::string ranks_report() {
  const int size = world().size();
  return size == 1 ? "" : fmt::format("{} ranks, each with its part of every batch\n", size);
}

int largest_of_ranks(int mine) {
  if (world().size() == 1) return mine;
  return std::ranges::max(world().all_gather(mine));
}

bool agreed_by_first_rank(const std::function<bool()>& f) {
  std::uint8_t yes = world().rank() == 0 && f() ? 1 : 0;
  world().broadcast(std::span(&yes, 1));
  return yes != 0;
}

}  // namespace steady::examples
