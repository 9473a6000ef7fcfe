#pragma once

#include <string>
#include <utility>
#include <vector>

namespace steady {

/// One line on what computes here, for logs and bug reports: the matrix and convolution libraries
/// with their versions and threading, and the number of threads.
[[nodiscard]] std::string library_report();

/// The same as names and values: "steadygrad" (version), "compiler" (and build type), "libraries",
/// "hdf5" (version), "event files" (version of protobuf, or "none"), "simd" (instruction set of the
/// kernels on this machine), "threads".
[[nodiscard]] std::vector<std::pair<std::string, std::string>> library_facts();

}  // namespace steady
