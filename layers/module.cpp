#include <steadygrad/layers/module.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/qualified_name-inl.hpp>
#include <unordered_map>
#include <unordered_set>

namespace steady {

using detail::qualified_name;

namespace {

bool same_kind(Dtype a, Dtype b) { return a == b || (is_float(a) && is_float(b)); }

bool same_values(const Tensor& a, const Tensor& b) {
  const Tensor other = b.detached_copy(a.dtype());
  return dispatch_all(
      a.dtype(), [&]<Element T>() { return std::ranges::equal(a.data<T>(), other.data<T>()); });
}

}  // namespace

std::string_view to_string(Mode mode) {
  switch (mode) {
    case Mode::Train:
      return "train";
    case Mode::Eval:
      return "eval";
    case Mode::Frozen:
      return "frozen";
  }
  return "?";
}

void LoadReport::raise(const std::string& title) const {
  if (clean()) return;
  std::string text = title;
  const auto list = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) text += fmt::format("\n  {}: {}", what, fmt::join(names, "; "));
  };
  list("missing", missing);
  list("unexpected", unexpected);
  list("other shape or dtype", misfit);
  throw Error(text);
}

// --- the tree ----------------------------------------------------------------------------------

std::string Module::path() const {
  return parent_ == nullptr ? name_ : qualified_name(parent_->path(), name_);
}

std::vector<Module*> Module::children() const {
  std::vector<Module*> result;
  for (const Child& child : children_) result.push_back(child.module.get());
  return result;
}

void Module::visit(const std::function<void(Module&)>& visit) {
  visit(*this);
  for (const Child& child : children_) child.module->visit(visit);
}

void Module::visit(const std::function<void(const Module&)>& visit) const {
  visit(*this);
  for (const Child& child : children_) std::as_const(*child.module).visit(visit);
}

void Module::check_name(const char* what, const std::string& name) const {
  STEADY_CHECK(Error, !name.empty() && name.find('.') == std::string::npos,
               "{}: a name must not be empty or hold a dot; got '{}'", what, name);
  const bool taken =
      std::ranges::any_of(entries_, [&](const Entry& e) { return e.name == name; }) ||
      std::ranges::any_of(children_, [&](const Child& c) { return c.name == name; });
  STEADY_CHECK(Error, !taken, "{}: the name '{}' is taken in {}", what, name,
               path().empty() ? "the model" : fmt::format("'{}'", path()));
}

void Module::adopt(std::string name, std::unique_ptr<Module> child,
                   std::function<void(Module&, const std::string&)> rebuild) {
  check_name("add", name);
  child->parent_ = this;
  child->name_ = name;
  children_.push_back({std::move(name), std::move(child), std::move(rebuild)});
}

// --- what it holds -----------------------------------------------------------------------------

Tensor& Module::add_entry(Entry entry, bool present) {
  if (!present) return absent_.emplace_back();
  check_name(entry.buffer ? "add_buffer" : "add_parameter", entry.name);
  if (!entry.buffer) entry.value.set_requires_grad();
  ready_ = false;
  return entries_.emplace_back(std::move(entry)).value;
}

Tensor& Module::add_parameter(std::string name, const Shape& shape, Role role, Init init,
                              bool present) {
  if (!present) return add_entry({}, false);
  STEADY_CHECK(Error, init != nullptr, "add_parameter: '{}' needs an initializer", name);
  return add_entry({.name = std::move(name),
                    .value = Tensor::zeros(shape),
                    .role = role,
                    .ready = false,
                    .init = std::move(init)},
                   true);
}

Tensor& Module::add_parameter(std::string name, const Tensor& value, Role role, bool present) {
  if (!present) return add_entry({}, false);
  return add_entry({.name = std::move(name),
                    .value = value.detached_copy(),
                    .role = role,
                    .initial = value.detached_copy()},
                   true);
}

Tensor& Module::add_buffer(std::string name, const Tensor& value, bool present) {
  if (!present) return add_entry({}, false);
  return add_entry({.name = std::move(name),
                    .value = value.detached_copy(),
                    .buffer = true,
                    .initial = value.detached_copy()},
                   true);
}

void Module::each_entry(const std::string& prefix,
                        const std::function<void(const std::string&, Entry&)>& visit) {
  for (Entry& entry : entries_) visit(qualified_name(prefix, entry.name), entry);
  for (const Child& child : children_)
    child.module->each_entry(qualified_name(prefix, child.name), visit);
}

std::vector<Parameter> Module::parameters() const {
  std::vector<Parameter> result;
  std::unordered_set<std::uint64_t> seen;
  const_cast<Module*>(this)->each_entry("", [&](const std::string& path, Entry& entry) {
    if (entry.buffer || !seen.insert(entry.value.storage().id()).second) return;
    result.push_back({path, entry.value, entry.role});
  });
  return result;
}

State Module::state() const {
  State result;
  const_cast<Module*>(this)->each_entry("", [&](const std::string& path, Entry& entry) {
    result.push_back({path, entry.value});
  });
  return result;
}

std::int64_t Module::parameter_count() const {
  std::int64_t count = 0;
  for (const Parameter& p : parameters()) count += p.value.numel();
  return count;
}

std::function<void()> Module::plan_load(const State& state, LoadReport& report) {
  std::map<std::string_view, const Tensor*> given;
  for (const auto& [name, value] : state) {
    STEADY_CHECK(Error, given.emplace(name, &value).second, "load: the state names '{}' twice",
                 name);
  }
  struct Copy {
    Entry* entry;
    Tensor value;
  };
  std::vector<Copy> copies;
  std::unordered_map<std::uint64_t, std::pair<std::string, const Tensor*>> by_storage;
  std::vector<std::pair<std::string, std::uint64_t>> absent;
  each_entry("", [&](const std::string& path, Entry& entry) {
    const std::uint64_t id = entry.value.storage().id();
    const auto at = given.find(path);
    if (at == given.end()) {
      absent.emplace_back(path, id);
      return;
    }
    const Tensor* value = at->second;
    given.erase(at);
    if (!value->defined() || value->shape() != entry.value.shape() ||
        !same_kind(value->dtype(), entry.value.dtype())) {
      report.misfit.push_back(fmt::format("{}: model {}, state {}", path,
                                          steady::describe(entry.value), steady::describe(*value)));
      return;
    }
    const auto [known, fresh] = by_storage.try_emplace(id, path, value);
    STEADY_CHECK(Error, fresh || same_values(*known->second.second, *value),
                 "load: '{}' and '{}' are one tensor in the model but differ in the state",
                 known->second.first, path);
    // A value that no other handle can reach cannot change while others are copied.
    const bool as_is = value->unique() && value->dtype() == entry.value.dtype();
    copies.push_back({&entry, as_is ? *value : value->detached_copy(entry.value.dtype())});
  });
  for (const auto& [path, id] : absent) {
    if (!by_storage.contains(id)) report.missing.push_back(path);
  }
  for (const auto& [name, value] : given) report.unexpected.emplace_back(name);
  return [this, copies = std::move(copies)] {
    std::unordered_set<std::uint64_t> filled;
    for (const Copy& copy : copies) {
      Tensor target = copy.entry->value;
      target.copy_from(copy.value, "load");
      filled.insert(target.storage().id());
    }
    each_entry("", [&](const std::string&, Entry& entry) {
      entry.ready = entry.ready || filled.contains(entry.value.storage().id());
    });
  };
}

LoadReport Module::load(const State& state, const LoadOptions& options) {
  LoadReport report;
  const std::function<void()> copy_in = plan_load(state, report);
  if (options.strict) report.raise("load: the state does not fit the model");
  copy_in();
  return report;
}

void Module::initialize(std::uint64_t seed) {
  std::unordered_set<std::uint64_t> filled;
  each_entry("", [&](const std::string& path, Entry& entry) {
    if (!filled.insert(entry.value.storage().id()).second) {
      entry.ready = true;
    } else if (entry.initial.defined()) {
      entry.value.copy_from(entry.initial.detached_copy(entry.value.dtype()), "initialize");
    } else {
      Random random(seed, path);
      entry.init(entry.value, random);
      entry.ready = true;
    }
  });
  visit([&](Module& module) { module.on_initialize(seed); });
}

void Module::check_initialized() {
  if (ready_) return;
  for (const Entry& entry : entries_) {
    STEADY_CHECK(
        Error, entry.ready,
        "{}: parameter '{}' has no values yet: call initialize(seed) or load(state) on the "
        "model",
        describe(), entry.name);
  }
  ready_ = true;
}

ParameterExchange::ParameterExchange(std::span<const std::vector<Tensor*>> places,
                                     std::span<const Tensor> values) {
  for (std::size_t i = 0; i < places.size(); ++i) {
    for (Tensor* place : places[i]) {
      own_.emplace_back(place, *place);
      *place = values[i];
    }
  }
}

ParameterExchange::~ParameterExchange() {
  for (auto& [place, value] : own_) *place = std::move(value);
}

std::vector<std::vector<Tensor*>> parameter_places(Module& module) {
  module.visit([](Module& m) { m.check_initialized(); });
  std::vector<std::vector<Tensor*>> result;
  std::unordered_map<std::uint64_t, std::size_t> index;
  module.each_entry("", [&](const std::string&, Module::Entry& entry) {
    if (entry.buffer) return;
    const auto [at, is_new] = index.try_emplace(entry.value.storage().id(), result.size());
    if (is_new) result.emplace_back();
    result[at->second].push_back(&entry.value);
  });
  return result;
}

void Module::to(Dtype dtype) {
  STEADY_CHECK(ShapeError, is_float(dtype), "to: needs f32 or f64; got {}", to_string(dtype));
  std::unordered_map<std::uint64_t, Tensor> converted;  // ties stay ties
  each_entry("", [&](const std::string&, Entry& entry) {
    if (!is_float(entry.value.dtype()) || entry.value.dtype() == dtype) return;
    Tensor& target = converted[entry.value.storage().id()];
    if (!target.defined()) {
      target = entry.value.detached_copy(dtype);
      target.set_requires_grad(entry.value.requires_grad());
    }
    entry.value = target;
  });
}

// --- modes -------------------------------------------------------------------------------------

void Module::train(bool on) {
  visit([on](Module& module) {
    if (module.mode_ != Mode::Frozen) module.mode_ = on ? Mode::Train : Mode::Eval;
  });
}

void Module::freeze() {
  visit([](Module& module) { module.mode_ = Mode::Frozen; });
  each_entry("", [](const std::string&, Entry& entry) {
    if (!entry.buffer) entry.value.set_requires_grad(false);
  });
}

void Module::unfreeze() {
  visit([](Module& module) { module.mode_ = Mode::Train; });
  each_entry("", [](const std::string&, Entry& entry) {
    if (!entry.buffer) entry.value.set_requires_grad(true);
  });
}

// --- copying and printing ----------------------------------------------------------------------

void copy_module(const Module& from, Module& to) {
  std::unordered_map<std::uint64_t, Tensor> copies;
  to.copy_from(from, copies);
}

void Module::copy_from(const Module& from, std::unordered_map<std::uint64_t, Tensor>& copies) {
  for (std::size_t i = 0; i < from.children_.size(); ++i) {
    const Child& child = from.children_[i];
    if (i == children_.size()) child.rebuild(*this, child.name);
    STEADY_CHECK(Error, children_[i].name == child.name,
                 "clone: the copy of '{}' has child '{}' where the original has '{}'",
                 from.describe(), children_[i].name, child.name);
    children_[i].module->copy_from(*child.module, copies);
  }
  STEADY_CHECK(Error, entries_.size() == from.entries_.size(),
               "clone: the copy of '{}' has other parameters than the original", from.describe());
  for (std::size_t i = 0; i < from.entries_.size(); ++i) {
    const Entry& source = from.entries_[i];
    Entry& target = entries_[i];
    STEADY_CHECK(Error, target.name == source.name && target.value.shape() == source.value.shape(),
                 "clone: the copy of '{}' has {} {} where the original has {} {}", from.describe(),
                 target.name, steady::describe(target.value), source.name,
                 steady::describe(source.value));
    Tensor& copy = copies[source.value.storage().id()];
    if (!copy.defined()) {
      copy = source.value.detached_copy();
      copy.set_requires_grad(source.value.requires_grad());
    }
    target.value = copy;
    target.ready = source.ready;
  }
  mode_ = from.mode_;
  on_clone(from);
}

namespace {

struct Row {
  std::array<std::string, 6> cells;
};

std::string render(const std::vector<Row>& rows) {
  std::array<std::size_t, 6> width{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < width.size(); ++i) {
      width[i] = std::max(width[i], row.cells[i].size());
    }
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < width.size(); ++i) {
      line += i == 3 ? fmt::format("{:>{}}  ", row.cells[i], width[i])
                     : fmt::format("{:<{}}  ", row.cells[i], width[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace

std::string Module::summary() const {
  std::vector<Row> rows{{{"path", "layer / role", "shape", "parameters", "mode", "statistics"}}};
  std::int64_t total = 0;
  std::int64_t trained = 0;
  std::unordered_set<std::uint64_t> seen;
  visit([&](const Module& module) {
    if (&module != this || !module.entries_.empty()) {
      rows.push_back({{module.path(), module.describe(), "", "",
                       std::string(to_string(module.mode_)), module.statistics()}});
    }
    for (const Entry& entry : module.entries_) {
      const bool tied = !entry.buffer && !seen.insert(entry.value.storage().id()).second;
      const std::int64_t count = entry.buffer || tied ? 0 : entry.value.numel();
      total += count;
      trained += entry.value.requires_grad() ? count : 0;
      const std::string role = entry.buffer ? "buffer" : std::string(to_string(entry.role));
      rows.push_back(
          {{"  " + entry.name, tied ? role + " (tied)" : role, to_string(entry.value.shape()),
            count > 0 ? fmt::format("{}", count) : "", "", ""}});
    }
  });
  return render(rows) + fmt::format("{} parameters, {} trained\n", total, trained);
}

}  // namespace steady
