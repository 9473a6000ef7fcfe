#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <steadygrad/core/io/run_record.hpp>
#include <string>
#include <vector>

#include "examples/study/plan.hpp"

namespace steady::examples {

/// One number per layer, in the order of depth.
struct Profile {
  std::vector<std::int64_t> layer;
  std::vector<double> value;

  /// First over last; NaN for fewer than two layers.
  [[nodiscard]] double first_to_last() const;
};

/// Factor per layer of a least-squares line through (layer, log value), from layer `low` to layer
/// `high`; NaN when fewer than two of these are positive and finite.
[[nodiscard]] double growth_per_layer(const Profile& profile, std::int64_t low, std::int64_t high);

/// Per-layer growth of the squared gradient norm in a plain ReLU network with BatchNorm of batch B
/// at initialization, at infinite width:                       [Yang et al. 2019, theorem 9]
///   ((B - 1 + J'(c)) / (1 - J(c)) - 1) / (B - 3),  c = -1 / (B - 1),
///   J(c) = (sqrt(1 - c^2) + (pi - acos c) c) / pi,  J'(c) = (pi - acos c) / pi
/// B > 3.
[[nodiscard]] double batch_norm_growth(double batch);

/// A cell and its log.
struct Result {
  Cell cell;
  RunRecord run;
  std::string status;  ///< trained, stalled, diverged, failed or initial

  /// A result of the log as a number; NaN when it has none of that name.
  [[nodiscard]] double number(const char* name) const;
  [[nodiscard]] std::string text(const char* name) const;
  [[nodiscard]] bool trained() const { return status == "trained"; }
  /// Loss of every step.
  [[nodiscard]] std::vector<double> losses() const;

  /// RMS of the gradient of all weights of a layer together, at sampled step `row` (0: the initial
  /// model). A layer is what shares the first number in its path.
  [[nodiscard]] Profile weight_gradients(std::size_t row) const;
  /// RMS of a layer's output at sampled step `row`.
  [[nodiscard]] Profile activations(std::size_t row) const;
  /// Norm of the gradient of the loss by each layer's output, at sampled step `row`.
  [[nodiscard]] Profile flow(std::size_t row) const;
  /// Squared norm of the gradient that flows into the linear map of each layer, initial model.
  [[nodiscard]] Profile squared_flow() const;
  /// Median over the weights of their gradient's signal to noise; NaN: not measured.
  [[nodiscard]] double signal_to_noise() const;
  /// The steps that were sampled.
  [[nodiscard]] std::vector<std::int64_t> sampled_steps() const;
};

/// A question with the results that are there, in the order of its cells.
struct Answer {
  Question question;
  std::vector<Result> results;

  /// The results at the greatest depth, of the first seed there.
  [[nodiscard]] std::vector<const Result*> deepest() const;
};

/// What a study left in a directory.
struct StudyResults {
  Plan plan;
  std::filesystem::path out;
  std::vector<Answer> answers;
  std::int64_t missing = 0;  ///< cells without a log
};

/// Reads plan.json and the logs. Throws IoError, or Error for a plan that cannot be read, naming
/// the file.
[[nodiscard]] StudyResults load_results(const std::filesystem::path& out);

/// What tells this cell from its neighbours: the values of the varied members, those in `without`
/// left out. "layer, pre, depth 12".
[[nodiscard]] std::string label(const Question& question, const Cell& cell,
                                const std::vector<std::string>& without = {});

}  // namespace steady::examples
