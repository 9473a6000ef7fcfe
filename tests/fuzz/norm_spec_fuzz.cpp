// Any text as a NormSpec: one that prints as a text which parses to the same, or an Error.
#include <cstdint>
#include <cstdlib>
#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steady;
  try {
    const NormSpec spec = NormSpec::parse({reinterpret_cast<const char*>(data), size});
    if (NormSpec::parse(to_string(spec)) != spec) std::abort();
    (void)make_norm(spec, 4);
  } catch (const Error&) {
    return 0;
  }
  return 0;
}
