#include <steadygrad/core/library_report.hpp>

#include <fmt/core.h>

#include <steadygrad/core/kernels/gemm.hpp>
#include <steadygrad/core/parallel.hpp>

namespace steady {

std::string library_report() {
  return fmt::format("{}; {} threads", kernels::gemm_libraries(), num_threads());
}

}  // namespace steady
