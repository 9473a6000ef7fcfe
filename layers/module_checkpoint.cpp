#include <algorithm>
#include <map>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/checkpoint.hpp>
#include <steadygrad/layers/module.hpp>
#include <steadygrad/layers/qualified_name-inl.hpp>

namespace steady {

using detail::qualified_name;

namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

/// The mode of that name, or null.
const Mode* mode_of(const hdf5::Value& value) {
  static constexpr std::array Modes = {Mode::Train, Mode::Eval, Mode::Frozen};
  const auto* text = std::get_if<std::string>(&value);
  const auto at = std::ranges::find_if(
      Modes, [&](Mode mode) { return text != nullptr && *text == to_string(mode); });
  return at == Modes.end() ? nullptr : &*at;
}

}  // namespace

std::vector<Module::Extra> Module::extras() {
  std::vector<Extra> result;
  const std::string root = path();
  visit([&](Module& module) {
    // Relative to this module: a part of a larger model has the names that it has alone.
    std::string at = module.path().substr(root.size());
    if (at.starts_with('.')) at.erase(0, 1);
    result.push_back({qualified_name(at, "mode"), &module});
    for (Entry& entry : module.entries_) {
      if (!entry.buffer)
        result.push_back({qualified_name(at, entry.name + ".requires_grad"), &entry});
    }
    for (const Counter& counter : module.counters()) {
      result.push_back({qualified_name(at, counter.name), counter});
    }
  });
  return result;
}

CheckpointPart Module::checkpoint() const {
  CheckpointPart part{state(), {}};
  for (const auto& [name, place] : const_cast<Module*>(this)->extras()) {
    std::visit(
        Overloaded{[&, &key = name](const Module* m) {
                     part.values.emplace_back(key, std::string(to_string(m->mode_)));
                   },
                   [&, &key = name](const Entry* e) {
                     if (!e->value.requires_grad()) {
                       part.values.emplace_back(key, std::int64_t{0});
                     }
                   },
                   [&, &key = name](const Counter& c) { part.values.emplace_back(key, *c.value); }},
        place);
  }
  return part;
}

std::function<void()> Module::prepare_restore(const CheckpointPart& part) {
  LoadReport report;
  std::vector<std::function<void()>> takes{plan_load(part.tensors, report)};
  std::map<std::string, const hdf5::Value*, std::less<>> given;
  for (const auto& [name, value] : part.values) given.emplace(name, &value);
  for (const auto& [name, place] : extras()) {
    const auto at = given.find(name);
    const hdf5::Value* value = at == given.end() ? nullptr : at->second;
    if (at != given.end()) given.erase(at);
    const auto misfit = [&, &key = name](const char* must) {
      report.misfit.push_back(
          fmt::format("{}: must be {}, state {}", key, must, hdf5::to_string(*value)));
    };
    if (auto* const* entry = std::get_if<Entry*>(&place)) {
      if (value != nullptr && *value != hdf5::Value(std::int64_t{0})) misfit("0");
      takes.emplace_back([e = *entry, on = value == nullptr] { e->value.set_requires_grad(on); });
    } else if (value == nullptr) {
      report.missing.push_back(name);
    } else if (const auto* counter = std::get_if<Counter>(&place)) {
      const auto* number = std::get_if<std::uint64_t>(value);
      if (number == nullptr) {
        misfit("a uint64");
      } else {
        takes.emplace_back([to = counter->value, n = *number] { *to = n; });
      }
    } else if (const Mode* mode = mode_of(*value); mode == nullptr) {
      misfit("train, eval or frozen");
    } else {
      takes.emplace_back([m = std::get<Module*>(place), to = *mode] { m->mode_ = to; });
    }
  }
  for (const auto& [name, value] : given) report.unexpected.push_back(name);
  report.raise("the state does not fit the model");
  return [takes = std::move(takes)] {
    for (const auto& take : takes) take();
  };
}

}  // namespace steady
