#include <steadygrad/optim/optimizer.hpp>

#include <cmath>
#include <steadygrad/core/error.hpp>
#include <unordered_map>
#include <utility>

namespace steady {

Optimizer::Optimizer(std::vector<Parameter> parameters, double lr)
    : parameters_(std::move(parameters)), lr_(lr) {
  set_lr(lr);
  STEADY_CHECK(Error, !parameters_.empty(), "optimizer: needs at least one parameter");
  std::unordered_map<std::uint64_t, const std::string*> seen;
  for (const Parameter& p : parameters_) {
    const auto [at, fresh] = seen.try_emplace(p.value.storage().id(), &p.name);
    STEADY_CHECK(Error, fresh, "optimizer: '{}' and '{}' are the same tensor", *at->second, p.name);
  }
}

void Optimizer::set_lr(double lr) {
  STEADY_CHECK(Error, std::isfinite(lr) && lr >= 0.0,
               "optimizer: the learning rate must be finite and not negative; got {}", lr);
  lr_ = lr;
}

void Optimizer::step(const Gradients& gradients) {
  std::vector<std::pair<std::size_t, const Tensor*>> moved;
  bool known = gradients.empty();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& p = parameters_[i];
    const Tensor* gradient = gradients.find(p.value);
    if (gradient == nullptr) continue;
    known = true;
    if (!p.value.requires_grad()) continue;
    STEADY_CHECK(ShapeError,
                 gradient->shape() == p.value.shape() && gradient->dtype() == p.value.dtype(),
                 "optimizer: the gradient of '{}' must be {}; got {}", p.name, describe(p.value),
                 describe(*gradient));
    moved.emplace_back(i, gradient);
  }
  STEADY_CHECK(Error, known,
               "optimizer: none of the {} gradients belongs to one of the {} parameters; was it "
               "made for another model, for the original of a clone, or before to()?",
               gradients.size(), parameters_.size());
  for (const auto& [index, gradient] : moved) update(index, *gradient);
  ++updates_;
}

std::string Optimizer::describe_groups() const {
  std::string text;
  for (const Parameter& p : parameters_) {
    text += fmt::format("{} ({}): {}\n", p.name, to_string(p.role),
                        decays(p) ? "weight decay" : "no weight decay");
  }
  return text;
}

}  // namespace steady
