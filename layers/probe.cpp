#include <steadygrad/layers/probe.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/state_update.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/core/watch.hpp>
#include <thread>
#include <unordered_map>
#include <utility>

namespace steady {
namespace {

/// A parameter with what the probe remembers of it.
struct Watched {
  Parameter parameter;
  Tensor before{};            // its values when the step began
  double rms = 0;             // of `before`
  Tensor gradient{};          // of the last sampled step that had one
  bool has_gradient = false;  // in this step
  bool has_previous = false;  // `gradient` holds numbers
};

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

class Probe::State : public LayerObserver, public std::enable_shared_from_this<Probe::State> {
 public:
  State(Layer& model, const ProbeOptions& options, ProbeSink sink)
      : o_(options), sink_(std::move(sink)), root_(&model), next_step_(options.first_step) {}
  ~State() override { detach(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void attach();
  void detach();
  void close_step();
  [[nodiscard]] std::int64_t next_step() const { return next_step_; }
  [[nodiscard]] const std::vector<ProbeStep>& steps() const { return kept_; }

  void on_enter(Layer& layer, const Tensor& x) override;
  void on_result(Layer& layer, const Tensor& x, const Tensor& y) override;
  void on_leave(Layer& layer) noexcept override;
  void on_destroy(Layer& layer) noexcept override;

 private:
  struct Seen {
    std::string path;
    bool wanted = false;
    int calls = 0;  // in this step
  };

  void begin_step();
  void find_parameters();
  void watch_parameters();
  void add_sample(const std::string& path, int call, Observed what, const TensorStats& stats) {
    step_.samples.push_back({path, call, what, stats});
  }
  /// Statistics of an activation; an output is often the next layer's input.
  const TensorStats& stats_of(const Tensor& x);
  void take_output_gradient(std::uint64_t sample, Layer* layer, int call, const Tensor& gradient);
  void take_parameter_gradient(std::size_t index, const Tensor& gradient);
  [[nodiscard]] bool here() const { return std::this_thread::get_id() == thread_; }

  const ProbeOptions o_;
  const ProbeSink sink_;
  const std::thread::id thread_ = std::this_thread::get_id();
  Layer* root_;  // null once it has died
  std::unordered_map<Layer*, Seen> layers_;
  std::vector<Watched> parameters_;

  std::int64_t next_step_;
  int depth_ = 0;             // of running forwards of the root
  bool inside_ = false;       // a sampled forward is running
  std::uint64_t tape_ = 0;    // of the step
  std::uint64_t sample_ = 0;  // number of the sampled step; 0: none
  bool open_ = false;         // step_ has not been handed over
  ProbeStep step_;
  std::vector<std::pair<const Layer*, int>> gradients_seen_;
  struct Known {
    std::uint64_t storage, version;
    std::int64_t numel;
    TensorStats stats;
  };
  std::vector<Known> known_;
  std::vector<ProbeStep> kept_;
};

// --- attaching ---------------------------------------------------------------------------------

void Probe::State::attach() {
  std::vector<std::string> all;
  bool any = false;
  root_->visit([&](Module& module) {
    auto* layer = dynamic_cast<Layer*>(&module);
    if (layer == nullptr) return;
    const std::string path = layer->path();
    const bool wanted = matches(o_.paths, path);
    any |= wanted;
    all.push_back(path);
    if (wanted || layer == root_) layers_.emplace(layer, Seen{path, wanted, 0});
  });
  STEADY_CHECK(Error, any, "Probe: no layer matches '{}'; the layers are '{}'", o_.paths,
               fmt::join(all, "', '"));
  for (const auto& entry : layers_) entry.first->attach(*this);
}

void Probe::State::detach() {
  for (const auto& entry : layers_) entry.first->detach(*this);
  layers_.clear();
  root_ = nullptr;
}

void Probe::State::on_destroy(Layer& layer) noexcept {
  layers_.erase(&layer);
  if (&layer == root_) root_ = nullptr;
}

/// Anew for every sampled step: to() exchanges the tensors, and layers may have been added.
void Probe::State::find_parameters() {
  const std::string prefix = root_->path();
  std::vector<Watched> now;
  for (Parameter& p : root_->parameters()) {
    if (!prefix.empty()) p.name = prefix + "." + p.name;
    if (!matches(o_.paths, owner(p.name))) continue;
    Watched watched{.parameter = std::move(p)};
    for (Watched& known : parameters_) {
      if (!known.parameter.value.shares_storage_with(watched.parameter.value)) continue;
      watched.before = std::move(known.before);
      watched.gradient = std::move(known.gradient);
      watched.has_previous = known.has_previous;
    }
    now.push_back(std::move(watched));
  }
  parameters_ = std::move(now);
}

// --- a step ------------------------------------------------------------------------------------

void Probe::State::on_enter(Layer& layer, const Tensor&) {
  if (&layer != root_ || !here()) return;
  if (depth_ == 0) begin_step();
  ++depth_;
}

void Probe::State::begin_step() {
  const bool trains = recording() && state_updates() && root_->mode() != Mode::Eval;
  if (!trains && !o_.evaluation) return;
  close_step();
  const std::int64_t step = next_step_++;
  if ((step - o_.first_step) % o_.every != 0) return;
  inside_ = open_ = true;
  tape_ = recording_tape();
  ++sample_;
  step_.step = step;
  gradients_seen_.clear();
  known_.clear();
  for (auto& entry : layers_) entry.second.calls = 0;
  find_parameters();
  for (Watched& w : parameters_) {
    remember(w.before, w.parameter.value);
    const TensorStats stats = tensor_stats(w.before);
    w.rms = stats.rms;
    add_sample(w.parameter.name, 0, Observed::Parameter, stats);
  }
}

void Probe::State::on_leave(Layer& layer) noexcept {
  if (&layer != root_ || !here() || --depth_ > 0 || !inside_) return;
  inside_ = false;
  known_.clear();
}

void Probe::State::on_result(Layer& layer, const Tensor& x, const Tensor& y) {
  if (!here() || !inside_ || recording_tape() != tape_) return;
  const auto at = layers_.find(&layer);
  if (at == layers_.end()) return;
  if (&layer == root_ && depth_ == 1) watch_parameters();
  Seen& seen = at->second;
  if (!seen.wanted) return;
  const int call = seen.calls++;
  if (x.defined() && is_float(x.dtype())) add_sample(seen.path, call, Observed::Input, stats_of(x));
  if (o_.measures) {
    const NoRecord no_record;
    const NoStateUpdate no_update;
    layer.measure(x, [&](std::string_view name, double value) {
      step_.measures.push_back({seen.path, call, std::string(name), value});
    });
  }
  if (!y.defined() || !is_float(y.dtype())) return;
  add_sample(seen.path, call, Observed::Output, stats_of(y));
  watch_gradient(y, [weak = weak_from_this(), sample = sample_, &layer, call](const Tensor& g) {
    if (const auto state = weak.lock()) state->take_output_gradient(sample, &layer, call, g);
  });
}

const TensorStats& Probe::State::stats_of(const Tensor& x) {
  const Storage& storage = x.storage();
  for (const Known& known : known_) {
    if (known.storage == storage.id() && known.version == storage.version() &&
        known.numel == x.numel()) {
      return known.stats;
    }
  }
  known_.push_back({storage.id(), storage.version(), x.numel(), tensor_stats(x)});
  return known_.back().stats;
}

void Probe::State::take_output_gradient(std::uint64_t sample, Layer* layer, int call,
                                        const Tensor& gradient) {
  const auto at = layers_.find(layer);
  if (!open_ || sample != sample_ || at == layers_.end()) return;
  const std::pair<const Layer*, int> which(layer, call);
  if (std::ranges::find(gradients_seen_, which) != gradients_seen_.end()) return;
  gradients_seen_.push_back(which);
  add_sample(at->second.path, call, Observed::OutputGradient, tensor_stats(gradient));
}

// --- parameters --------------------------------------------------------------------------------

void Probe::State::watch_parameters() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    watch_gradient(parameters_[i].parameter.value,
                   [weak = weak_from_this(), sample = sample_, i](const Tensor& g) {
                     const auto state = weak.lock();
                     if (!state || !state->open_ || sample != state->sample_) return;
                     state->take_parameter_gradient(i, g);
                   });
  }
}

void Probe::State::take_parameter_gradient(std::size_t index, const Tensor& gradient) {
  Watched& w = parameters_[index];
  if (std::exchange(w.has_gradient, true)) return;
  add_sample(w.parameter.name, 0, Observed::ParameterGradient, tensor_stats(gradient));
  if (w.has_previous) {
    step_.measures.push_back(
        {w.parameter.name, 0, "gradient_cosine", cosine(w.gradient, gradient)});
  }
  remember(w.gradient, gradient);
  w.has_previous = true;
}

void Probe::State::close_step() {
  if (!std::exchange(open_, false)) return;
  for (Watched& w : parameters_) {
    if (!std::exchange(w.has_gradient, false)) continue;
    const TensorStats update = difference_stats(w.parameter.value, w.before);
    add_sample(w.parameter.name, 0, Observed::Update, update);
    const double ratio = w.rms > 0 ? update.rms / w.rms : std::numeric_limits<double>::quiet_NaN();
    step_.measures.push_back({w.parameter.name, 0, "update_ratio", ratio});
  }
  // The memory of a step serves the next one, also when the sink throws.
  struct Clear {
    ProbeStep& step;
    ~Clear() {
      step.samples.clear();
      step.measures.clear();
    }
  } const clear{step_};
  if (sink_) {
    sink_(step_);
  } else {
    kept_.push_back(step_);
  }
}

// --- the handle --------------------------------------------------------------------------------

Probe::Probe(Layer& model, const ProbeOptions& options, ProbeSink sink) {
  STEADY_CHECK(Error, options.every >= 1, "Probe: every must be >= 1; got {}", options.every);
  state_ = std::make_shared<State>(model, options, std::move(sink));
  state_->attach();
}

Probe::~Probe() {
  state_->detach();
  try {
    state_->close_step();
  } catch (...) {  // a destructor must not throw: finish() is there for who wants to know
    return;
  }
}

void Probe::finish() { state_->close_step(); }
std::int64_t Probe::next_step() const { return state_->next_step(); }
const std::vector<ProbeStep>& Probe::steps() const { return state_->steps(); }

}  // namespace steady
