#pragma once

#include <string>

/// The example programs, as a user runs them.
namespace steady::testing_support {

struct Outcome {
  int code;          ///< exit code; -1 when the program did not start or was killed
  std::string text;  ///< standard output and standard error
};

/// Runs build/bin/<program> with arguments as a shell splits them.
[[nodiscard]] Outcome run_program(const std::string& program, const std::string& arguments = {});

}  // namespace steady::testing_support
