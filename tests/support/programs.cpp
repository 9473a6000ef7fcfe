#include "tests/support/programs.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace steady::testing_support {

namespace {

std::string command_of(const std::string& program, const std::string& arguments) {
  return "'" STEADY_BIN_DIR "/" + program + "' " + arguments + " 2>&1";
}

Outcome run_command(const std::string& command) {
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

}  // namespace

Outcome run_program(const std::string& program, const std::string& arguments) {
  return run_command(command_of(program, arguments));
}

std::optional<Outcome> run_on_ranks(int ranks, const std::string& program,
                                    const std::string& arguments) {
  if (run_command("mpirun --version 2>&1").text.find("Open MPI") == std::string::npos) return {};
  return run_command("ASAN_OPTIONS=detect_leaks=0 mpirun --oversubscribe --bind-to none " +
                     std::string(::getuid() == 0 ? "--allow-run-as-root -n " : "-n ") +
                     std::to_string(ranks) + " " + command_of(program, arguments));
}

RunningProgram::RunningProgram(const std::string& program, const std::string& arguments) {
  static int count = 0;
  output_ = std::filesystem::temp_directory_path() /
            ("steady_output_" + std::to_string(getpid()) + "_" + std::to_string(++count));
  const std::string command = "exec '" STEADY_BIN_DIR "/" + program + "' " + arguments + " 2>&1";
  std::array<std::string, 3> words{"sh", "-c", command};
  std::array<char*, 4> argv{words[0].data(), words[1].data(), words[2].data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, output_.c_str(), O_CREAT | O_TRUNC | O_WRONLY,
                                   0600);
  over_ = posix_spawn(&pid_, "/bin/sh", &actions, nullptr, argv.data(), environ) != 0;
  posix_spawn_file_actions_destroy(&actions);
}

RunningProgram::~RunningProgram() {
  send(SIGKILL);
  (void)wait();
  std::error_code ignored;
  std::filesystem::remove(output_, ignored);
}

bool RunningProgram::runs() {
  if (!over_ && ::waitpid(pid_, &status_, WNOHANG) == pid_) over_ = true;
  return !over_;
}

void RunningProgram::send(int signal) const {
  if (!over_) ::kill(pid_, signal);
}

Outcome RunningProgram::wait() {
  while (!over_) over_ = ::waitpid(pid_, &status_, 0) == pid_ || errno != EINTR;
  return {WIFEXITED(status_) ? WEXITSTATUS(status_) : -1, output()};
}

std::string RunningProgram::output() const {
  std::ifstream in(output_);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace steady::testing_support
