#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <steadygrad/core/stats.hpp>
#include <steadygrad/layers/layer.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace steady {

/// What a sample is of.
enum class Observed : std::uint8_t {
  Input,              ///< of a layer's forward
  Output,             ///< of a layer's forward
  OutputGradient,     ///< the gradient that flows into a layer's output
  Parameter,          ///< before the step's update
  ParameterGradient,  ///< as backward gives it: before clipping
  Update,             ///< the parameter after the step minus before
};

/// "input", "output", "output_gradient", "value", "gradient", "update".
[[nodiscard]] std::string_view to_string(Observed what);

/// A tensor seen in a step. `path`: of the layer ("" for a root), or of the parameter
/// ("conv1.weight"). `call`: how many times the layer had run before in this step.
struct ProbeSample {
  std::string path;
  int call = 0;
  Observed what = Observed::Output;
  TensorStats stats{};
};

/// A number seen in a step: one of Layer::measure, or of a parameter
///   update_ratio     RMS of the update / RMS of the parameter; NaN when the parameter is zero
///   gradient_cosine  cosine between this gradient and that of the sampled step before
struct ProbeMeasure {
  std::string path;
  int call = 0;
  std::string name;
  double value = 0;
};

/// Everything seen in one sampled step.
struct ProbeStep {
  std::int64_t step = 0;
  std::vector<ProbeSample> samples;
  std::vector<ProbeMeasure> measures;

  /// The sample, or null.
  [[nodiscard]] const ProbeSample* find(std::string_view path, Observed what, int call = 0) const;
  [[nodiscard]] std::optional<double> measure(std::string_view path, std::string_view name,
                                              int call = 0) const;
};

/// Takes a step when it is over; valid during the call only.
using ProbeSink = std::function<void(const ProbeStep&)>;

/// Options of Probe.
struct ProbeOptions {
  /// Which layers, with their own parameters, by path: patterns separated by commas, in which '*'
  /// stands for any characters, dots too, and '?' for one. "conv*,*.norm1".
  std::string paths = "*";
  std::int64_t every = 25;      ///< sample steps 0, every, 2 every, ...; >= 1
  std::int64_t first_step = 0;  ///< number of the first step, for a run that goes on
  bool evaluation = false;  ///< every forward of the model is a step, also one that trains nothing
  bool measures = true;     ///< ask layers for their own measures
};

/// Watches a model train, without changing a bit of what it computes:
///
///   Probe probe(model, {.paths = "*norm*", .every = 10}, log_probe(log));
///
/// A training step is a forward of `model` (by its call operator, on the thread that made the
/// probe) while a tape records, outside eval mode and outside NoStateUpdate. It is over, with
/// updates, when the next one begins or at finish(). In a sampled step the probe sees every call of
/// a layer that matches, under the tape of the step (those under an inner tape or NoRecord are not
/// part of it), and the first backward of that tape; gradients of a second one, as in
/// Hessian-vector products, are not taken. Integer tensors are left out. Layers added later are not
/// seen.
class Probe {
 public:
  /// Attaches. Without a sink, steps are kept: steps(). Throws Error for every < 1 and when no
  /// layer matches, naming the layers.
  explicit Probe(Layer& model, const ProbeOptions& options = {}, ProbeSink sink = {});
  /// Detaches and hands over the last step; what the sink throws passes in silence here, so call
  /// finish(). The model may have died before.
  ~Probe();
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  /// Ends the step: its updates are what the parameters have become by now.
  void finish();
  /// Training steps seen so far, sampled or not, first_step included.
  [[nodiscard]] std::int64_t next_step() const;
  /// The steps so far, when there is no sink.
  [[nodiscard]] const std::vector<ProbeStep>& steps() const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

/// Whether `path` matches `patterns` as ProbeOptions::paths describes.
[[nodiscard]] bool matches(std::string_view patterns, std::string_view path);

}  // namespace steady
