#include <steadygrad/optim/state_loader.hpp>

#include <fmt/ranges.h>

#include <cmath>
#include <steadygrad/core/error.hpp>

namespace steady::detail {

Tensor count_tensor(std::int64_t count) {
  return Tensor::from<std::int64_t>(Shape{}, std::span<const std::int64_t>(&count, 1));
}

StateLoader::StateLoader(const char* owner, const State& state) : owner_(owner) {
  for (const auto& [name, value] : state) {
    STEADY_CHECK(Error, given_.emplace(name, &value).second, "{}: the state names '{}' twice",
                 owner_, name);
  }
}

Tensor StateLoader::take(const std::string& name, const Shape& shape, Dtype dtype) {
  const auto at = given_.find(name);
  if (at == given_.end()) {
    missing_.push_back(name);
    return {};
  }
  const Tensor& value = *at->second;
  given_.erase(at);
  if (value.defined() && value.shape() == shape && value.dtype() == dtype) {
    return value.detached_copy();
  }
  misfit_.push_back(fmt::format("{}: must be {} {}, state {}", name, to_string(dtype),
                                to_string(shape), describe(value)));
  return {};
}

std::int64_t StateLoader::take_count(const std::string& name, std::int64_t low) {
  const Tensor value = take(name, Shape{}, Dtype::I64);
  if (!value.defined()) return 0;
  const std::int64_t count = value.data<std::int64_t>()[0];
  if (count < low) {
    misfit_.push_back(fmt::format("{}: must be at least {}, state {}", name, low, count));
  }
  return count;
}

double StateLoader::take_rate(const std::string& name) {
  const Tensor value = take(name, Shape{}, Dtype::F64);
  if (!value.defined()) return 0.0;
  const double rate = value.item();
  if (!std::isfinite(rate) || rate < 0.0) {
    misfit_.push_back(fmt::format("{}: must be finite and not negative, state {}", name, rate));
  }
  return rate;
}

double StateLoader::take_share(const std::string& name) {
  const double share = take_rate(name);
  if (share >= 1.0) misfit_.push_back(fmt::format("{}: must be below 1, state {}", name, share));
  return share;
}

void StateLoader::expect(const std::string& name, double value, std::optional<double> usual) {
  double given = usual.value_or(0.0);
  if (!usual || has(name)) {
    const Tensor tensor = take(name, Shape{}, Dtype::F64);
    if (!tensor.defined()) return;
    given = tensor.item();
  }
  if (given != value) {
    misfit_.push_back(fmt::format("{}: must be {}, state {}", name, value, given));
  }
}

void StateLoader::finish() const {
  if (missing_.empty() && misfit_.empty() && given_.empty() && refused_.empty()) return;
  std::string text = fmt::format("{}: the state does not fit", owner_);
  const auto list = [&](const char* title, const std::vector<std::string>& lines) {
    if (!lines.empty()) text += fmt::format("\n  {}: {}", title, fmt::join(lines, "; "));
  };
  std::vector<std::string> unexpected = refused_;
  for (const auto& [name, value] : given_) unexpected.push_back(name);
  list("missing", missing_);
  list("unexpected", unexpected);
  list("of another shape, dtype or value", misfit_);
  throw Error(text);
}

}  // namespace steady::detail
