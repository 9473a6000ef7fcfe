#pragma once

#include <string>

namespace steady::examples {

/// While alive, SIGINT and SIGTERM ask the program to end, in its own time, instead of ending it; a
/// second signal ends it at once. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The signal that came, 0 while there is none.
  [[nodiscard]] static int received();
};

/// Ends a program that was asked to stop: run_program prints the text and gives exit code 128 +
/// signal. Not an error.
struct Stopped {
  int signal;
  std::string text;
};

/// "SIGINT" or "SIGTERM".
[[nodiscard]] std::string signal_name(int signal);

}  // namespace steady::examples
