#include <steadygrad/optim/optimizer.hpp>

#include <cmath>
#include <steadygrad/core/error.hpp>
#include <unordered_map>
#include <utility>

namespace steady {
namespace {

void check_unshared(const char* name, const std::vector<Parameter>& parameters) {
  STEADY_CHECK(Error, !parameters.empty(), "{}: needs at least one parameter", name);
  std::unordered_map<std::uint64_t, const std::string*> seen;
  for (const Parameter& p : parameters) {
    const auto [at, fresh] = seen.try_emplace(p.value.storage().id(), &p.name);
    STEADY_CHECK(Error, fresh, "{}: '{}' and '{}' are the same tensor", name, *at->second, p.name);
  }
}

void check_factor(const char* name, const char* option, double value) {
  STEADY_CHECK(Error, std::isfinite(value) && value >= 0.0,
               "{}: {} must be finite and not negative; got {}", name, option, value);
}

}  // namespace

Optimizer::Optimizer(std::vector<Parameter> parameters, const Common& common,
                     std::vector<std::string> slots)
    : name_(common.name),
      parameters_(std::move(parameters)),
      slot_names_(std::move(slots)),
      lr_(common.lr) {
  check_factor(common.name, "lr", common.lr);
  check_factor(common.name, "weight_decay", common.weight_decay);
  check_unshared(common.name, parameters_);
  std::vector<std::size_t> members(common.groups.size(), 0);
  for (const Parameter& p : parameters_) {
    Entry& entry = entries_.emplace_back();
    entry.slots.resize(slot_names_.size());
    if (common.decay_roles.contains(p.role)) entry.weight_decay = common.weight_decay;
    for (std::size_t i = 0; i < common.groups.size(); ++i) {
      const ParameterGroup& group = common.groups[i];
      STEADY_CHECK(Error, group.matches != nullptr, "{}: group {} has no `matches`", common.name,
                   i);
      if (!group.matches(p)) continue;
      ++members[i];
      entry.lr_scale = group.lr_scale;
      entry.weight_decay = group.weight_decay.value_or(entry.weight_decay);
      break;
    }
  }
  for (std::size_t i = 0; i < common.groups.size(); ++i) {
    check_factor(common.name, "lr_scale of a group", common.groups[i].lr_scale);
    check_factor(common.name, "weight_decay of a group",
                 common.groups[i].weight_decay.value_or(0.0));
    STEADY_CHECK(Error, members[i] > 0,
                 "{}: group {} has no parameters; none matches, or all belong to groups before it",
                 common.name, i);
  }
}

void Optimizer::set_lr(double lr) {
  check_factor("optimizer", "the learning rate", lr);
  lr_ = lr;
}

void Optimizer::find_gradients(const Gradients& gradients) {
  bool known = gradients.empty();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& p = parameters_[i];
    const Tensor* gradient = gradients.find(p.value);
    known = known || gradient != nullptr;
    entries_[i].gradient = p.value.requires_grad() ? gradient : nullptr;
    if (entries_[i].gradient == nullptr) continue;
    STEADY_CHECK(ShapeError,
                 gradient->shape() == p.value.shape() && gradient->dtype() == p.value.dtype(),
                 "optimizer: the gradient of '{}' must be {}; got {}", p.name, describe(p.value),
                 describe(*gradient));
  }
  STEADY_CHECK(Error, known,
               "optimizer: none of the {} gradients belongs to one of the {} parameters; was it "
               "made for another model, for the original of a clone, or before to()?",
               gradients.size(), parameters_.size());
}

void Optimizer::step(const Gradients& gradients) {
  find_gradients(gradients);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Entry& entry = entries_[i];
    if (entry.gradient == nullptr) continue;
    Tensor& value = parameters_[i].value;
    if (entry.step == 0) {
      for (Tensor& slot : entry.slots) {
        slot = Tensor::full(value.shape(), slots_begin_at(), value.dtype());
      }
    }
    ++entry.step;
    update({value, *entry.gradient, entry.slots, entry.step, lr_ * entry.lr_scale,
            entry.weight_decay});
    entry.gradient = nullptr;
  }
  ++updates_;
}

std::string Optimizer::describe_groups() const {
  std::string text;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Entry& entry = entries_[i];
    text += fmt::format("{} ({}): ", parameters_[i].name, to_string(parameters_[i].role));
    text += entry.weight_decay == 0.0 ? "no weight decay"
                                      : fmt::format("weight decay {}", entry.weight_decay);
    if (entry.lr_scale != 1.0) text += fmt::format(", {} of the learning rate", entry.lr_scale);
    text += '\n';
  }
  return text;
}

}  // namespace steady
