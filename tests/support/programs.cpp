#include "tests/support/programs.hpp"

#include <sys/wait.h>

#include <array>
#include <cstdio>

namespace steady::testing_support {

Outcome run_program(const std::string& program, const std::string& arguments) {
  const std::string command =
      "'" + std::string(STEADY_BIN_DIR) + "/" + program + "' " + arguments + " 2>&1";
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {-1, "cannot start " + command};
  std::string text;
  std::array<char, 4096> buffer{};
  for (std::size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    text.append(buffer.data(), n);
  }
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
}

}  // namespace steady::testing_support
