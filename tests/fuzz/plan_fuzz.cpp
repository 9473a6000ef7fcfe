// Any text as a plan of the stability study: one that prints as a text which parses to the same
// cells, or an Error.
#include <cstdint>
#include <cstdlib>
#include <steadygrad/core/error.hpp>
#include <string_view>

#include "examples/study/plan.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steady;
  try {
    const auto plan = examples::parse_plan({reinterpret_cast<const char*>(data), size}, "fuzz");
    const auto again = examples::parse_plan(examples::to_json(plan).dump(), "again");
    if (again.cells() != plan.cells()) std::abort();
  } catch (const Error&) {
    return 0;
  }
  return 0;
}
