#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <steadygrad/core/gradients.hpp>
#include <steadygrad/core/io/event_file.hpp>
#include <steadygrad/core/parameter.hpp>
#include <string>
#include <vector>

namespace steady::examples {

/// Adds --tensorboard.
void add_tensorboard_option(CLI::App& app, std::string& directory);

/// The event files of a program that trains one model or several, one after the other; does nothing
/// without a directory. A run that is resumed gets a new file, which TensorBoard shows with the old
/// one. Watching changes no number of the training.
class Tensorboard {
 public:
  /// Steps between histograms.
  static constexpr std::int64_t HistogramEvery = 50;

  /// `runs`: what tells the runs apart; of several each has a directory in `directory`. Throws
  /// OptionError when the library was built without protobuf or the directory cannot be made.
  Tensorboard(std::string directory, std::vector<std::string> runs);

  [[nodiscard]] bool active() const { return !directory_.empty(); }
  /// A run begins. Throws IoError when its file cannot be made.
  void begin(std::size_t run);
  /// A failure to write is a warning, once; the training goes on without.
  void scalar(const std::string& tag, std::int64_t step, double value);
  /// gradient_norm/NAME for each parameter that has a gradient; at step 1 and every HistogramEvery
  /// steps from there the histograms parameters/NAME and gradients/NAME.
  void parameters(std::int64_t step, std::span<const Parameter> parameters,
                  const Gradients& gradients);
  /// The run is over: its file is whole.
  void finish();

 private:
  template <class F>
  void write(F&& body);

  std::string directory_;
  std::vector<std::string> runs_;
  std::optional<EventFile> file_;
};

}  // namespace steady::examples
