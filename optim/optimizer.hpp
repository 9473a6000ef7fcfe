#pragma once

#include <cstdint>
#include <steadygrad/core/gradients.hpp>
#include <steadygrad/core/parameter.hpp>
#include <string>
#include <vector>

namespace steady {

/// Base of the optimizers: the parameters they move, the learning rate, the number of updates done.
class Optimizer {
 public:
  /// Throws Error when there is no parameter, when two share one tensor, or when lr is negative or
  /// not finite.
  Optimizer(std::vector<Parameter> parameters, double lr);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update. Parameters without a gradient, or that require none, stay as they are. Throws
  /// ShapeError, before anything has changed, when a gradient does not fit its parameter, and Error
  /// when there are gradients but none is of a parameter: those of another model.
  void step(const Gradients& gradients);

  [[nodiscard]] double lr() const { return lr_; }
  /// Sets the rate of the next update.
  void set_lr(double lr);
  /// Updates done.
  [[nodiscard]] std::int64_t updates() const { return updates_; }
  [[nodiscard]] const std::vector<Parameter>& parameters() const { return parameters_; }
  /// One line per parameter: name, role, whether weight decay applies.
  [[nodiscard]] std::string describe_groups() const;

 protected:
  /// Moves parameter `index` along `gradient`.
  virtual void update(std::size_t index, const Tensor& gradient) = 0;
  [[nodiscard]] virtual bool decays(const Parameter& parameter) const = 0;

 private:
  std::vector<Parameter> parameters_;
  double lr_;
  std::int64_t updates_ = 0;
};

}  // namespace steady
