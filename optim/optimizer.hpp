#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <steadygrad/core/gradients.hpp>
#include <steadygrad/core/io/checkpoint.hpp>
#include <steadygrad/core/parameter.hpp>
#include <steadygrad/optim/parameter_group.hpp>
#include <string>
#include <vector>

namespace steady {

/// Base of the optimizers: the parameters they move, their groups, the learning rate, the number of
/// updates done, and the state kept per parameter, with its names.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update. Parameters without a gradient, or that require none, stay as they are, and so does
  /// their count of steps. Throws ShapeError, before anything has changed, when a gradient does not
  /// fit its parameter, and Error when there are gradients but none is of a parameter: those of
  /// another model.
  void step(const Gradients& gradients);

  [[nodiscard]] double lr() const { return lr_; }
  /// Sets the rate of the next update; groups take their share of it.
  void set_lr(double lr);
  /// Updates done.
  [[nodiscard]] std::int64_t updates() const { return updates_; }
  [[nodiscard]] const std::vector<Parameter>& parameters() const { return parameters_; }
  /// One line per parameter: name, role, weight decay, share of the learning rate.
  [[nodiscard]] std::string describe_groups() const;

  /// Everything that an exact resumption needs beside the parameters, by name: "updates" (i64 []),
  /// "lr" (f64 []) and the other options, such as "AdamW.beta1" (f64 []); for each parameter with a
  /// share of the rate that is not 1 or a decay that is not 0 "<parameter>.lr_scale" and
  /// "<parameter>.weight_decay" (f64 []), for each that has been moved "<parameter>.step" (i64 [],
  /// its own count) and the optimizer's arrays under PyTorch's names, such as "<parameter>.exp_avg"
  /// (shape and dtype of the parameter). The arrays share the optimizer's memory.
  [[nodiscard]] State state() const;
  /// Takes a state over, before the first update too; values are copied. A parameter that has no
  /// "step" in it is one that has not been moved. Rate, momentum and beta1, which schedules move,
  /// become those of the state; the other options must be equal. Throws Error that lists every name
  /// that is missing, unexpected or of another shape, dtype or value, before anything has changed.
  void load_state(const State& state) { prepare_restore({state, {}})(); }
  /// The state as a part of a checkpoint.
  [[nodiscard]] CheckpointPart checkpoint() const { return {state(), {}}; }
  /// Checks as load_state does; what it returns takes the state over.
  [[nodiscard]] std::function<void()> prepare_restore(const CheckpointPart& part);

 protected:
  /// What the optimizers' options have in common.
  struct Common {
    const char* name;  // in errors
    double lr;
    double weight_decay;
    RoleSet decay_roles;
    std::span<const ParameterGroup> groups;
  };
  /// `slots`: names of the arrays kept per parameter. Throws Error when there is no parameter, when
  /// two share one tensor, for a rate or decay that is negative or not finite, and for a group
  /// without parameters.
  Optimizer(std::vector<Parameter> parameters, const Common& common,
            std::vector<std::string> slots);

  /// The parameter to move, and what with.
  struct Move {
    Tensor& value;
    const Tensor& gradient;
    std::span<Tensor> slots;  // in the order of the names; as slots_begin_at() on the first step
    std::int64_t step;        // of this parameter, from 1
    double lr;
    double weight_decay;
  };
  virtual void update(const Move& move) = 0;
  /// An option besides rate and decay, for state().
  struct Setting {
    const char* name;
    double value;
    bool scheduled = false;  // at most one: set_scheduled() takes over what a state says
  };
  [[nodiscard]] virtual std::vector<Setting> settings() const { return {}; }
  virtual void set_scheduled(double value) { (void)value; }
  /// What new arrays are filled with.
  [[nodiscard]] virtual double slots_begin_at() const { return 0.0; }

 private:
  struct Entry {
    double lr_scale = 1.0;
    double weight_decay = 0.0;
    std::int64_t step = 0;
    std::vector<Tensor> slots;
    const Tensor* gradient = nullptr;  // of the update that runs
  };

  void find_gradients(const Gradients& gradients);

  const char* name_;
  std::vector<Parameter> parameters_;
  std::vector<std::string> slot_names_;
  std::vector<Entry> entries_;  // one per parameter
  double lr_;
  std::int64_t updates_ = 0;
};

}  // namespace steady
