#include <steadygrad/layers/probe_parameters.hpp>

#include <limits>
#include <steadygrad/core/stats.hpp>
#include <steadygrad/core/watch.hpp>
#include <utility>

namespace steady::detail {
namespace {

/// Copies into memory kept from the last time where it fits.
void remember(Tensor& copy, const Tensor& source) {
  if (copy.defined() && copy.shape() == source.shape() && copy.dtype() == source.dtype()) {
    copy.copy_from(source, "Probe");
  } else {
    copy = source.detached_copy();
  }
}

/// The path of the module that owns the parameter of that name.
std::string_view owner(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

}  // namespace

void ProbeParameters::begin(const Module& root, std::string_view patterns, ProbeStep& step) {
  const std::string prefix = root.path();
  std::vector<Followed> now;
  for (Parameter& p : root.parameters()) {
    if (!prefix.empty()) p.name = prefix + "." + p.name;
    if (!matches(patterns, owner(p.name))) continue;
    Followed next{.parameter = std::move(p)};
    for (Followed& known : all_) {
      if (!known.parameter.value.shares_storage_with(next.parameter.value)) continue;
      next.before = std::move(known.before);
      next.gradient = std::move(known.gradient);
      next.previous = known.previous;
    }
    now.push_back(std::move(next));
  }
  all_ = std::move(now);
  for (Followed& f : all_) {
    remember(f.before, f.parameter.value);
    const TensorStats stats = tensor_stats(f.before);
    f.rms = stats.rms;
    step.samples.push_back({f.parameter.name, 0, Observed::Parameter, stats});
  }
}

void ProbeParameters::watch(const std::function<void(std::size_t, const Tensor&)>& take) const {
  for (std::size_t i = 0; i < all_.size(); ++i) {
    watch_gradient(all_[i].parameter.value, [take, i](const Tensor& g) { take(i, g); });
  }
}

void ProbeParameters::take(std::size_t index, const Tensor& gradient, ProbeStep& step) {
  Followed& f = all_[index];
  if (std::exchange(f.reached, true)) return;
  const std::string& name = f.parameter.name;
  step.samples.push_back({name, 0, Observed::ParameterGradient, tensor_stats(gradient)});
  if (f.previous) {
    step.measures.push_back({name, 0, "gradient_cosine", cosine(f.gradient, gradient)});
  }
  remember(f.gradient, gradient);
  f.previous = true;
}

void ProbeParameters::end(ProbeStep& step) {
  for (Followed& f : all_) {
    if (!std::exchange(f.reached, false)) continue;
    const TensorStats update = difference_stats(f.parameter.value, f.before);
    const double ratio = f.rms > 0 ? update.rms / f.rms : std::numeric_limits<double>::quiet_NaN();
    step.samples.push_back({f.parameter.name, 0, Observed::Update, update});
    step.measures.push_back({f.parameter.name, 0, "update_ratio", ratio});
  }
}

}  // namespace steady::detail
