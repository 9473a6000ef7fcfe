// Any bytes as an IDX file, plain or gzip: an array whose bytes are those its header promises, or
// an IoError.
#include <cstdint>
#include <cstdlib>
#include <steadygrad/core/data/idx.hpp>
#include <steadygrad/core/error.hpp>

#include "tests/fuzz/memory_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steady;
  try {
    const fuzz::MemoryFile file(data, size);
    const IdxArray array = read_idx(file.path());
    if (static_cast<std::int64_t>(array.bytes.size()) != array.numel() * size_of(array.type)) {
      std::abort();
    }
    if (array.type == IdxType::F32 || array.type == IdxType::F64) {
      (void)to_float(array);
    } else {
      (void)to_int64(array);
    }
  } catch (const IoError&) {
    return 0;
  }
  return 0;
}
