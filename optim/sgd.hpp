#pragma once

#include <steadygrad/optim/optimizer.hpp>
#include <vector>

namespace steady {

/// Options of Sgd.
struct SgdOptions {
  double lr = 1e-2;
  double momentum = 0.0;      ///< in [0, 1)
  double dampening = 0.0;     ///< (1 - dampening) weighs the gradient after the first update
  bool nesterov = false;      ///< needs momentum > 0 and dampening 0
  double weight_decay = 0.0;  ///< L2: added to the gradient as weight_decay * p
  RoleSet decay_roles = {Role::Weight, Role::Embedding};  ///< RoleSet::all() as PyTorch
};

/// Stochastic gradient descent as PyTorch defines it:               [Sutskever et al. 2013]
///   g' = g + weight_decay * p
///   first update: buf = g';   later: buf = momentum * buf + (1 - dampening) * g'
///   p -= lr * (nesterov ? g' + momentum * buf : buf);   without momentum p -= lr * g'
/// The learning rate multiplies the buffer, so a changed rate acts at once. Weight decay applies to
/// the roles in `decay_roles`, by default not to norm gains, norm shifts and biases.
class Sgd : public Optimizer {
 public:
  /// Throws Error for options out of range.
  Sgd(std::vector<Parameter> parameters, const SgdOptions& options);

  [[nodiscard]] const SgdOptions& options() const { return o_; }
  /// Momentum buffer of parameter `index`; undefined before its first update.
  [[nodiscard]] const Tensor& momentum_buffer(std::size_t index) const { return buffers_[index]; }

 private:
  void update(std::size_t index, const Tensor& gradient) override;
  [[nodiscard]] bool decays(const Parameter& parameter) const override {
    return o_.weight_decay != 0.0 && o_.decay_roles.contains(parameter.role);
  }

  SgdOptions o_;
  std::vector<Tensor> buffers_;
};

}  // namespace steady
