#include <steadygrad/optim/optimizer.hpp>
#include <steadygrad/optim/state_loader.hpp>
#include <utility>

namespace steady {

State Optimizer::state() const {
  State result{{"updates", detail::count_tensor(updates_)},
               {"lr", Tensor::scalar(lr_, Dtype::F64)}};
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.step == 0) continue;
    const std::string& name = parameters_[i].name;
    result.push_back({name + ".step", detail::count_tensor(entry.step)});
    for (std::size_t k = 0; k < slot_names_.size(); ++k) {
      result.push_back({name + "." + slot_names_[k], entry.slots[k]});
    }
  }
  return result;
}

void Optimizer::load_state(const State& state) {
  detail::StateLoader loader("optimizer", state);
  const std::int64_t updates = loader.take_count("updates", 0);
  const double lr = loader.take_rate("lr");
  std::vector<Entry> entries = entries_;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& p = parameters_[i];
    Entry& entry = entries[i];
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
  entries_ = std::move(entries);
  updates_ = updates;
  lr_ = lr;
}

}  // namespace steady
