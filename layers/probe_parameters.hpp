#pragma once

#include <functional>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/probe.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace steady::detail {

/// The parameters that a probe follows, with what it remembers of them from step to step: their
/// values before the update, and the gradients of the last sampled step.
class ProbeParameters {
 public:
  /// Begins a sampled step: finds the parameters anew (to() exchanges tensors, layers may have been
  /// added), keeps their values, and adds their samples to `step`.
  void begin(const Module& root, std::string_view patterns, ProbeStep& step);
  /// Watches the gradient of each: `take(index, gradient)` is called with it.
  void watch(const std::function<void(std::size_t, const Tensor&)>& take) const;
  /// Takes the gradient of parameter `index`, the first of a step.
  void take(std::size_t index, const Tensor& gradient, ProbeStep& step);
  /// Ends the step: adds the updates of those that had a gradient.
  void end(ProbeStep& step);

 private:
  struct Followed {
    Parameter parameter;
    Tensor before{};
    double rms = 0;  // of `before`
    Tensor gradient{};
    bool reached = false;   // by this step's backward
    bool previous = false;  // `gradient` is that of an earlier step
  };
  std::vector<Followed> all_;
};

}  // namespace steady::detail
