#pragma once

#include <steadygrad/optim/optimizer.hpp>
#include <vector>

namespace steady {

/// Options of RmsProp. The defaults are PyTorch's but for `decay_roles`.
struct RmsPropOptions {
  double lr = 1e-2;
  double alpha = 0.99;                   ///< in [0, 1), memory of the mean square
  double eps = 1e-8;                     ///< not negative, outside the root
  double weight_decay = 0.0;             ///< L2: added to the gradient as weight_decay * p
  double momentum = 0.0;                 ///< in [0, 1), of the scaled gradient
  bool centered = false;                 ///< divide by the deviation instead of the mean square
  RoleSet decay_roles = DecayRoles;      ///< RoleSet::all() as PyTorch
  std::vector<ParameterGroup> groups{};  ///< exceptions
};

/// RMSprop with PyTorch's conventions:                   [Tieleman & Hinton 2012; Graves 2013, eq.
/// 38]
///   g' = g + weight_decay * p;   v = alpha * v + (1 - alpha) * g'^2
///   centered: a = alpha * a + (1 - alpha) * g', and v - a^2 in place of v below
///   d = g' / (sqrt(v) + eps)
///   p -= lr * d;   with momentum buf = momentum * buf + d and p -= lr * buf
/// v starts at 0 without correction: the first steps are larger, up to lr / sqrt(1 - alpha) each.
/// State: "square_avg", "grad_avg" when centered, "momentum_buffer" with momentum.
class RmsProp : public Optimizer {
 public:
  /// Throws Error for options out of range.
  explicit RmsProp(std::vector<Parameter> parameters, const RmsPropOptions& options = {});

  [[nodiscard]] const RmsPropOptions& options() const { return o_; }

 private:
  void update(const Move& move) override;
  [[nodiscard]] std::vector<Setting> settings() const override;

  RmsPropOptions o_;
};

}  // namespace steady
