#include <steadygrad/layers/probe.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/state_update.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/core/watch.hpp>
#include <steadygrad/layers/probe_parameters.hpp>
#include <thread>
#include <unordered_map>
#include <utility>

namespace steady {
namespace {

/// Clears a flag when a scope ends.
struct Finally {
  bool& flag;
  ~Finally() { flag = false; }
};

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
  void on_result(Layer& layer, const Tensor& x, const Tensor& y, const Measures& measures) override;
  void on_leave(Layer& layer) noexcept override;
  void on_destroy(Layer& layer) noexcept override;

 private:
  struct Seen {
    std::string path;
    bool wanted = false;
    int calls = 0;  // in this step
  };

  void begin_step();
  void add_sample(const std::string& path, int call, Observed what, const TensorStats& stats) {
    step_.samples.push_back({path, call, what, stats});
  }
  /// Statistics of an activation; an output is often the next layer's input.
  const TensorStats& stats_of(const Tensor& x);
  void take_output_gradient(std::uint64_t sample, Layer* layer, int call, const Tensor& gradient);
  [[nodiscard]] bool here() const { return std::this_thread::get_id() == thread_; }

  const ProbeOptions o_;
  const ProbeSink sink_;
  const std::thread::id thread_ = std::this_thread::get_id();
  Layer* root_;  // null once it has died
  std::unordered_map<Layer*, Seen> layers_;
  detail::ProbeParameters parameters_;

  std::int64_t next_step_;
  int depth_ = 0;             // of running forwards of the root
  bool inside_ = false;       // a sampled forward is running
  bool measuring_ = false;    // what a layer runs to measure itself is no call
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
  parameters_.begin(*root_, o_.paths, step_);
}

void Probe::State::on_leave(Layer& layer) noexcept {
  if (&layer != root_ || !here() || --depth_ > 0 || !inside_) return;
  inside_ = false;
  known_.clear();
}

void Probe::State::on_result(Layer& layer, const Tensor& x, const Tensor& y,
                             const Measures& measures) {
  if (!here() || !inside_ || measuring_ || recording_tape() != tape_) return;
  const auto at = layers_.find(&layer);
  if (at == layers_.end()) return;
  if (&layer == root_ && depth_ == 1) {
    parameters_.watch([weak = weak_from_this(), sample = sample_](std::size_t i, const Tensor& g) {
      const auto state = weak.lock();
      if (!state || !state->open_ || sample != state->sample_) return;
      state->parameters_.take(i, g, state->step_);
    });
  }
  Seen& seen = at->second;
  if (!seen.wanted) return;
  const int call = seen.calls++;
  if (x.defined() && is_float(x.dtype())) add_sample(seen.path, call, Observed::Input, stats_of(x));
  if (o_.measures) {
    const NoRecord no_record;
    const NoStateUpdate no_update;
    measuring_ = true;
    const Finally done{measuring_};
    measures([&](std::string_view name, double value) {
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

void Probe::State::close_step() {
  if (!std::exchange(open_, false)) return;
  parameters_.end(step_);
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
