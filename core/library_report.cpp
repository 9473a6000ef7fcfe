#include <steadygrad/core/library_report.hpp>

#include <fmt/core.h>

#include <steadygrad/core/kernels/gemm.hpp>
#include <steadygrad/core/kernels/simd_target.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/version.hpp>

namespace steady {

std::string library_report() {
  return fmt::format("{}; {} threads", kernels::gemm_libraries(), num_threads());
}

std::vector<std::pair<std::string, std::string>> library_facts() {
  return {{"steadygrad", STEADYGRAD_VERSION},
          {"compiler", STEADYGRAD_COMPILER ", " STEADYGRAD_BUILD_TYPE},
          {"libraries", kernels::gemm_libraries()},
          {"hdf5", STEADYGRAD_HDF5_VERSION},
          {"event files", STEADYGRAD_EVENT_FILES},
          {"simd", kernels::simd_target()},
          {"threads", fmt::format("{}", num_threads())}};
}

}  // namespace steady
