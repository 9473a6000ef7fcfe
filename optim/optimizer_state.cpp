#include <steadygrad/optim/optimizer.hpp>
#include <steadygrad/optim/state_loader.hpp>
#include <utility>

namespace steady {

State Optimizer::state() const {
  State result{{"updates", detail::count_tensor(updates_)},
               {"lr", Tensor::scalar(lr_, Dtype::F64)}};
  for (const Setting& s : settings()) {
    result.push_back({fmt::format("{}.{}", name_, s.name), Tensor::scalar(s.value, Dtype::F64)});
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Entry& entry = entries_[i];
    const std::string& name = parameters_[i].name;
    const auto unless = [&](double usual, const char* what, double value) {
      if (value == usual) return;
      result.push_back({fmt::format("{}.{}", name, what), Tensor::scalar(value, Dtype::F64)});
    };
    unless(1.0, "lr_scale", entry.lr_scale);
    unless(0.0, "weight_decay", entry.weight_decay);
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Entry& entry = entries_[i];
    const std::string& name = parameters_[i].name;
    if (entry.step == 0) continue;
    result.push_back({name + ".step", detail::count_tensor(entry.step)});
    for (std::size_t k = 0; k < slot_names_.size(); ++k) {
      result.push_back({name + "." + slot_names_[k], entry.slots[k]});
    }
  }
  return result;
}

std::function<void()> Optimizer::prepare_restore(const CheckpointPart& part) {
  detail::StateLoader loader("optimizer", part.tensors);
  for (const auto& [name, value] : part.values) loader.refuse(name);
  const std::int64_t updates = loader.take_count("updates", 0);
  const double lr = loader.take_rate("lr");
  std::optional<double> scheduled;
  for (const Setting& s : settings()) {
    const std::string name = fmt::format("{}.{}", name_, s.name);
    if (s.scheduled) {
      scheduled = loader.take_share(name);
    } else {
      loader.expect(name, s.value);
    }
  }
  std::vector<Entry> entries = entries_;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& p = parameters_[i];
    Entry& entry = entries[i];
    loader.expect(p.name + ".lr_scale", entry.lr_scale, 1.0);
    loader.expect(p.name + ".weight_decay", entry.weight_decay, 0.0);
    entry.step = 0;
    entry.slots.assign(slot_names_.size(), Tensor());
    bool moved = loader.has(p.name + ".step");
    for (const std::string& slot : slot_names_) moved = moved || loader.has(p.name + "." + slot);
    if (!moved) continue;
    entry.step = loader.take_count(p.name + ".step", 1);
    for (std::size_t k = 0; k < slot_names_.size(); ++k) {
      entry.slots[k] = loader.take(p.name + "." + slot_names_[k], p.value.shape(), p.value.dtype());
    }
  }
  loader.finish();
  return [this, entries = std::move(entries), updates, lr, scheduled] {
    entries_ = entries;
    updates_ = updates;
    lr_ = lr;
    if (scheduled) set_scheduled(*scheduled);
  };
}

}  // namespace steady
