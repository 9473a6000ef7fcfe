#pragma once

#include <cstdint>
#include <steadygrad/optim/optimizer.hpp>
#include <vector>

namespace steady {

/// Options of Adam. The defaults are PyTorch's but for `decay_roles`.
struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;                    ///< in [0, 1), memory of the mean gradient
  double beta2 = 0.999;                  ///< in [0, 1), memory of the mean square
  double eps = 1e-8;                     ///< not negative, outside the root
  double weight_decay = 0.0;             ///< L2: added to the gradient as weight_decay * p
  bool amsgrad = false;                  ///< divide by the largest mean square so far
  RoleSet decay_roles = DecayRoles;      ///< RoleSet::all() as PyTorch
  std::vector<ParameterGroup> groups{};  ///< exceptions
};

/// Options of AdamW. The defaults are PyTorch's but for `decay_roles`.
struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;  ///< every update takes lr * weight_decay of p away
  bool amsgrad = false;
  RoleSet decay_roles = DecayRoles;
  std::vector<ParameterGroup> groups{};
};

namespace detail {

/// What Adam and AdamW share; they differ in where the decay goes.
class AdamBase : public Optimizer {
 public:
  [[nodiscard]] double beta1() const { return o_.beta1; }
  /// beta1 of the next update, for one_cycle. Throws Error outside [0, 1).
  void set_beta1(double beta1);

 protected:
  AdamBase(const char* name, bool decoupled, std::vector<Parameter> parameters,
           const AdamOptions& options);

  AdamOptions o_;

 private:
  void update(const Move& move) override;
  [[nodiscard]] std::vector<Setting> settings() const override;
  void set_scheduled(double value) override { o_.beta1 = value; }

  const char* name_;
  bool decoupled_;
};

}  // namespace detail

/// Adam with PyTorch's conventions:                                          [Kingma & Ba 2015]
///   g' = g + weight_decay * p
///   m = beta1 * m + (1 - beta1) * g';   v = beta2 * v + (1 - beta2) * g'^2
///   p -= lr * m^ / (sqrt(v^) + eps),   m^ = m / (1 - beta1^t),   v^ = v / (1 - beta2^t)
/// t counts the updates of this parameter, those without a gradient left out. amsgrad puts the
/// largest v so far in place of v [Reddi et al. 2018]. Here weight decay is a term of the gradient
/// and is divided by sqrt(v^) with it; for decay proper take AdamW.
/// State: "exp_avg" (m), "exp_avg_sq" (v), "max_exp_avg_sq" with amsgrad.
class Adam : public detail::AdamBase {
 public:
  /// Throws Error for options out of range.
  explicit Adam(std::vector<Parameter> parameters, const AdamOptions& options = {})
      : AdamBase("Adam", false, std::move(parameters), options) {}

  [[nodiscard]] const AdamOptions& options() const { return o_; }
};

/// Adam with decoupled weight decay:                                    [Loshchilov & Hutter 2019]
///   p *= 1 - lr * weight_decay, then Adam's update with g itself
/// As in PyTorch the decay is multiplied by the learning rate: a schedule scales both, and another
/// rate means another effective decay. It applies to the roles in `decay_roles`, by default not to
/// norm gains, norm shifts and biases. State as Adam.
class AdamW : public detail::AdamBase {
 public:
  /// Throws Error for options out of range.
  explicit AdamW(std::vector<Parameter> parameters, const AdamWOptions& options = {});

  [[nodiscard]] AdamWOptions options() const;
};

}  // namespace steady
