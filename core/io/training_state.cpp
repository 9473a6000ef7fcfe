#include <steadygrad/core/io/training_state.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <span>
#include <steadygrad/core/error.hpp>
#include <type_traits>
#include <utility>

namespace steady {
namespace {

constexpr const char* Progress = "progress";
constexpr const char* Options = "options";

template <class T>
constexpr bool IsList = false;
template <class T>
constexpr bool IsList<std::vector<T>> = true;

std::string kind(const hdf5::Value& value) {
  constexpr std::array Names = {"int64", "uint64", "float64", "text"};
  return Names[value.index()];
}

/// The faults of one part, each kind on a line, thrown together.
struct Faults {
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  std::vector<std::string> other;

  void raise() const {
    std::vector<std::string> lines;
    const auto list = [&](const char* title, const std::vector<std::string>& names) {
      if (!names.empty()) lines.push_back(fmt::format("{}: {}", title, fmt::join(names, "; ")));
    };
    list("missing", missing);
    list("unexpected", unexpected);
    list("other", other);
    if (!lines.empty()) throw Error(fmt::format("{}", fmt::join(lines, "\n")));
  }
};

std::string indented(std::string text) {
  for (std::size_t at = 0; (at = text.find('\n', at)) != text.npos; at += 5) {
    text.replace(at, 1, "\n    ");
  }
  return text;
}

}  // namespace

TrainingState& TrainingState::add_object(
    std::string name, std::function<CheckpointPart()> read,
    std::function<std::function<void()>(const CheckpointPart&)> prepare) {
  const bool taken = name == Progress || name == Options ||
                     std::ranges::any_of(objects_, [&](const Object& o) { return o.name == name; });
  STEADY_CHECK(Error, !taken, "TrainingState: the name '{}' is taken", name);
  objects_.push_back({std::move(name), std::move(read), std::move(prepare)});
  return *this;
}

TrainingState& TrainingState::track(std::string name, Variable variable) {
  const bool taken =
      std::ranges::any_of(variables_, [&](const Tracked& t) { return t.name == name; });
  STEADY_CHECK(Error, !taken, "TrainingState: the name '{}' is taken", name);
  variables_.push_back({std::move(name), variable});
  return *this;
}

TrainingState& TrainingState::option(std::string name, hdf5::Value value) {
  const bool taken = std::ranges::any_of(options_, [&](const auto& o) { return o.first == name; });
  STEADY_CHECK(Error, !taken, "TrainingState: the option '{}' is given twice", name);
  options_.emplace_back(std::move(name), std::move(value));
  return *this;
}

CheckpointPart TrainingState::progress() const {
  CheckpointPart part;
  for (const auto& [name, variable] : variables_) {
    std::visit(
        [&, &key = name](const auto* v) {
          using T = std::remove_cvref_t<decltype(*v)>;
          if constexpr (IsList<T>) {
            using E = typename T::value_type;
            part.tensors.push_back(
                {key, Tensor::from<E>({std::ssize(*v)}, std::span<const E>(*v))});
          } else {
            part.values.emplace_back(key, *v);
          }
        },
        variable);
  }
  return part;
}

Checkpoint TrainingState::checkpoint() const {
  Checkpoint result;
  for (const Object& object : objects_) result.parts.push_back({object.name, object.read()});
  result.parts.push_back({Progress, progress()});
  result.parts.push_back({Options, {{}, options_}});
  return result;
}

std::function<void()> TrainingState::prepare_progress(const CheckpointPart& part) const {
  Faults faults;
  std::map<std::string, const Tensor*, std::less<>> lists;
  std::map<std::string, const hdf5::Value*, std::less<>> values;
  for (const NamedTensor& t : part.tensors) lists.emplace(t.name, &t.value);
  for (const auto& [name, value] : part.values) values.emplace(name, &value);
  std::vector<std::function<void()>> takes;
  for (const auto& [name, variable] : variables_) {
    std::visit(
        [&, &key = name](auto* v) {
          using T = std::remove_cvref_t<decltype(*v)>;
          if constexpr (IsList<T>) {
            using E = typename T::value_type;
            const auto at = lists.find(key);
            if (at == lists.end()) return faults.missing.push_back(key);
            const Tensor& list = *at->second;
            lists.erase(at);
            if (list.rank() != 1 || list.dtype() != dtype_of<E>) {
              return faults.other.push_back(fmt::format("{}: here {} of rank 1, there {}", key,
                                                        to_string(dtype_of<E>), describe(list)));
            }
            takes.emplace_back([v, list] {
              const auto data = list.template data<E>();
              v->assign(data.begin(), data.end());
            });
          } else {
            const auto at = values.find(key);
            if (at == values.end()) return faults.missing.push_back(key);
            const hdf5::Value& value = *at->second;
            values.erase(at);
            if (!std::holds_alternative<T>(value)) {
              return faults.other.push_back(
                  fmt::format("{}: here {}, there {}", key, kind(T{}), kind(value)));
            }
            takes.emplace_back([v, taken = std::get<T>(value)] { *v = taken; });
          }
        },
        variable);
  }
  for (const auto& [name, list] : lists) faults.unexpected.push_back(name);
  for (const auto& [name, value] : values) faults.unexpected.push_back(name);
  faults.raise();
  return [takes = std::move(takes)] {
    for (const auto& take : takes) take();
  };
}

void TrainingState::check_options(const CheckpointPart& part) const {
  Faults faults;
  std::map<std::string, const hdf5::Value*, std::less<>> values;
  for (const auto& [name, value] : part.values) values.emplace(name, &value);
  for (const auto& [name, value] : options_) {
    const auto at = values.find(name);
    if (at == values.end()) {
      faults.missing.push_back(name);
      continue;
    }
    if (*at->second != value) {
      faults.other.push_back(fmt::format("{}: here {}, there {}", name, hdf5::to_string(value),
                                         hdf5::to_string(*at->second)));
    }
    values.erase(at);
  }
  for (const auto& [name, value] : values) faults.unexpected.push_back(name);
  faults.raise();
}

void TrainingState::restore(const Checkpoint& checkpoint, const std::string& where) {
  std::string faults;
  std::vector<std::function<void()>> takes;
  std::vector<std::string> unexpected;
  for (const auto& [name, part] : checkpoint.parts) unexpected.push_back(name);
  const auto attempt = [&](const std::string& name, const auto& prepare) {
    const CheckpointPart* part = checkpoint.find(name);
    std::erase(unexpected, name);
    if (part == nullptr) {
      faults += fmt::format("\n  {}: the whole part is missing", name);
      return;
    }
    try {
      prepare(*part);
    } catch (const Error& error) {
      faults += fmt::format("\n  {}: {}", name, indented(error.what()));
    }
  };
  for (const Object& object : objects_) {
    attempt(object.name, [&](const CheckpointPart& p) { takes.push_back(object.prepare(p)); });
  }
  attempt(Progress, [&](const CheckpointPart& p) { takes.push_back(prepare_progress(p)); });
  attempt(Options, [&](const CheckpointPart& p) { check_options(p); });
  for (const std::string& name : unexpected) {
    faults += fmt::format("\n  {}: an unexpected part", name);
  }
  STEADY_CHECK(Error, faults.empty(), "'{}' does not fit this run{}", where, faults);
  for (const auto& take : takes) take();
}

}  // namespace steady
