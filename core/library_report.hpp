#pragma once

#include <string>

namespace steady {

/// One line on what computes here, for logs and bug reports: the matrix and convolution libraries
/// with their versions and threading, and the number of threads.
[[nodiscard]] std::string library_report();

}  // namespace steady
