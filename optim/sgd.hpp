#pragma once

#include <steadygrad/optim/optimizer.hpp>
#include <vector>

namespace steady {

/// Options of Sgd.
struct SgdOptions {
  double lr = 1e-2;
  double momentum = 0.0;                 ///< in [0, 1)
  double dampening = 0.0;                ///< (1 - dampening) weighs later gradients
  bool nesterov = false;                 ///< needs momentum > 0 and dampening 0
  double weight_decay = 0.0;             ///< L2: added to the gradient as weight_decay * p
  RoleSet decay_roles = DecayRoles;      ///< RoleSet::all() as PyTorch
  std::vector<ParameterGroup> groups{};  ///< exceptions
};

/// Stochastic gradient descent as PyTorch defines it:               [Sutskever et al. 2013]
///   g' = g + weight_decay * p
///   first update: buf = g';   later: buf = momentum * buf + (1 - dampening) * g'
///   p -= lr * (nesterov ? g' + momentum * buf : buf);   without momentum p -= lr * g'
/// The learning rate multiplies the buffer, so a changed rate acts at once. Weight decay applies to
/// the roles in `decay_roles`, by default not to norm gains, norm shifts and biases.
/// State: "momentum_buffer" when there is momentum.
class Sgd : public Optimizer {
 public:
  /// Throws Error for options out of range.
  explicit Sgd(std::vector<Parameter> parameters, const SgdOptions& options = {});

  [[nodiscard]] const SgdOptions& options() const { return o_; }
  /// Momentum of the next update, for one_cycle. Throws Error outside (0, 1) and for an optimizer
  /// made without momentum.
  void set_momentum(double momentum);

 private:
  void update(const Move& move) override;
  [[nodiscard]] std::vector<Setting> settings() const override;
  void set_scheduled(double value) override { o_.momentum = value; }

  SgdOptions o_;
};

}  // namespace steady
