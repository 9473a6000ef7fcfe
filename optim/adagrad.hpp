#pragma once

#include <steadygrad/optim/optimizer.hpp>
#include <vector>

namespace steady {

/// Options of Adagrad. The defaults are PyTorch's but for `decay_roles`.
struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0.0;                   ///< not negative
  double weight_decay = 0.0;               ///< L2: added to the gradient as weight_decay * p
  double initial_accumulator_value = 0.0;  ///< not negative
  double eps = 1e-10;                      ///< not negative, outside the root
  RoleSet decay_roles = DecayRoles;        ///< RoleSet::all() as PyTorch
  std::vector<ParameterGroup> groups{};    ///< exceptions
};

/// Adagrad with PyTorch's conventions:                                          [Duchi et al. 2011]
///   g' = g + weight_decay * p;   sum += g'^2, from initial_accumulator_value on
///   p -= lr / (1 + (t - 1) * lr_decay) * g' / (sqrt(sum) + eps)
/// t counts the updates of this parameter. State: "sum".
class Adagrad : public Optimizer {
 public:
  /// Throws Error for options out of range.
  explicit Adagrad(std::vector<Parameter> parameters, const AdagradOptions& options = {});

  [[nodiscard]] const AdagradOptions& options() const { return o_; }

 private:
  void update(const Move& move) override;
  [[nodiscard]] std::vector<Setting> settings() const override;
  [[nodiscard]] double slots_begin_at() const override { return o_.initial_accumulator_value; }

  AdagradOptions o_;
};

}  // namespace steady
