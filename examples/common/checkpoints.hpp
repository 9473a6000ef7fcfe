#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <steadygrad/core/io/training_state.hpp>
#include <string>
#include <vector>

#include "examples/common/stop_signal.hpp"

namespace steady::examples {

/// Values of the options of add_checkpoint_options.
struct CheckpointOptions {
  std::string save;          // empty: where `resume` is, or nowhere
  std::string resume;        // empty: begin anew
  std::int64_t every = 500;  // steps
  std::int64_t keep = 3;     // files of a directory
};

/// Adds --save, --save-every, --keep and --resume.
void add_checkpoint_options(CLI::App& app, CheckpointOptions& options);

/// The checkpoints of a program that trains one model or several, one after the other. One run has
/// the path itself; of several each has a directory in it. SIGINT and SIGTERM are caught while this
/// lives. With several ranks, all call its functions together: rank 0 alone reads and writes files,
/// and a signal to one of them stops all after the same step.
class Checkpoints {
 public:
  /// `runs`: what tells the runs apart. Throws OptionError for a file to save several runs in, for
  /// equal names, when nothing is there to resume, and for saving among checkpoints of another run.
  Checkpoints(CheckpointOptions options, std::vector<std::string> runs);

  /// Whether anything is saved or resumed.
  [[nodiscard]] bool active() const { return !o_.save.empty(); }
  /// Whether a last state could not be saved.
  [[nodiscard]] bool lost() const { return lost_; }

  /// A run begins: restores `state` if there is something to resume, and says so on standard
  /// output; else saves it as it is, so that a place that cannot be written shows at once.
  void begin(std::size_t run, TrainingState& state, const std::int64_t& step);
  /// After each update; saves when it is time. A periodic save that fails is a warning. Throws
  /// Stopped, with the state saved, when a signal has come.
  void after_step();
  /// The run is over: saves its last state. Failure is a warning and lost(). Throws Stopped when a
  /// signal has come.
  void finish();

 private:
  [[nodiscard]] CheckpointStore store(const std::string& path, std::size_t run) const;
  void save();
  bool save_or_warn();
  [[noreturn]] void stop(int signal, bool saved) const;

  CheckpointOptions o_;
  std::vector<std::string> runs_;
  StopSignals signals_;
  TrainingState* state_ = nullptr;
  const std::int64_t* step_ = nullptr;
  std::size_t run_ = 0;
  bool lost_ = false;
};

/// The name of a run as that of a directory.
[[nodiscard]] std::string directory_name(std::string run);

/// A checksum of a tensor's elements: tells whether a resumed run has the same data.
[[nodiscard]] std::uint64_t checksum(const Tensor& tensor);

}  // namespace steady::examples
