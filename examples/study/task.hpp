#pragma once

#include <cstdint>
#include <memory>
#include <steadygrad/core/data/dataset.hpp>
#include <steadygrad/layers/layer.hpp>
#include <string>

#include "examples/study/plan.hpp"

namespace steady::examples {

/// Where the real data may lie.
struct StudyData {
  std::string directory = "data";
};

/// What a cell trains: a model that gives logits [..., classes], and batches for it. The loss is
/// the mean cross entropy of model(x) against y.
class Task {
 public:
  virtual ~Task() = default;
  Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  [[nodiscard]] virtual Layer& model() = 0;
  /// Batch number `step` of the training data: a function of the cell's seed and the step alone.
  [[nodiscard]] virtual Dataset training(std::int64_t step) = 0;
  /// Data that training never sees, in pieces of evaluation size.
  [[nodiscard]] virtual std::vector<Dataset> validation() const = 0;
  /// One line on where the data come from.
  [[nodiscard]] virtual std::string source() const = 0;
};

/// Model and data of a cell, the model initialized from the cell's seed and scale. Throws Error
/// for a cell that does not fit together.
[[nodiscard]] std::unique_ptr<Task> make_task(const Cell& cell, const StudyData& data);

/// Ten Gaussian classes in 64 features whose scales run from 1e-2 to 1e2 and whose means lie ten
/// deviations off zero, as measured quantities do; class means are 1.5 deviations apart.
/// `input` says how the features are scaled from the statistics of the training part: raw, minmax
/// (to [0, 1]) or standardize.
[[nodiscard]] TrainTest make_tabular(const std::string& input, std::uint64_t seed);

}  // namespace steady::examples
