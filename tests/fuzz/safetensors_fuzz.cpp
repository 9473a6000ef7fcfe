// Any bytes as a safetensors file, or as the index of several: a header or an IoError, and a header
// that is accepted describes data that are there.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/safetensors_checkpoint.hpp>
#include <string_view>

namespace {

using namespace steady;

void read_file(std::span<const std::byte> bytes, bool lenient) {
  const safetensors::Header header =
      safetensors::read_header(bytes, "fuzz", {.allow_trailing_bytes = lenient});
  std::uint64_t at = 0;
  for (const safetensors::TensorInfo& t : header.tensors) {
    const auto size = static_cast<std::uint64_t>(t.numel() * safetensors::size_of(t.type));
    if (t.begin != at || t.end - t.begin != size) std::abort();
    at = t.end;
  }
  if (header.data_begin + at + header.ignored_bytes != bytes.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span bytes(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  try {
    if (data[0] % 4 == 0) {
      (void)safetensors::read_index({reinterpret_cast<const char*>(data + 1), size - 1}, "fuzz");
    } else {
      read_file(bytes, data[0] % 4 == 1);
    }
  } catch (const IoError&) {
    return 0;
  }
  return 0;
}
