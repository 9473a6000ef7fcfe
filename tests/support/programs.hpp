#pragma once

#include <optional>
#include <string>

/// The example programs, as a user runs them.
namespace steady::testing_support {

struct Outcome {
  int code;          ///< exit code; -1 when the program did not start or was killed
  std::string text;  ///< standard output and standard error
};

/// Runs build/bin/<program> with arguments as a shell splits them.
[[nodiscard]] Outcome run_program(const std::string& program, const std::string& arguments = {});

/// The same under mpirun; nothing where there is no mpirun of Open MPI.
[[nodiscard]] std::optional<Outcome> run_on_ranks(int ranks, const std::string& program,
                                                  const std::string& arguments = {});

/// A program that runs beside the test; killed with this when it still runs.
class RunningProgram {
 public:
  RunningProgram(const std::string& program, const std::string& arguments);
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  [[nodiscard]] bool runs();
  void send(int signal) const;
  /// What it wrote so far.
  [[nodiscard]] std::string output() const;
  /// Its end: exit code, or -1 when a signal ended it, and what it wrote.
  Outcome wait();

 private:
  int pid_ = 0;
  int status_ = 0;
  bool over_ = false;
  std::string output_;  // a file
};

}  // namespace steady::testing_support
