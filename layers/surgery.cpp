#include <steadygrad/layers/surgery.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/state_update.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/conv2d.hpp>
#include <steadygrad/layers/linear.hpp>
#include <string>
#include <vector>

namespace steady {
namespace {

constexpr const char* Op = "fold_batch_norm";

Tensor wide(const Tensor& t) { return t.detached_copy(Dtype::F64); }

/// t[k] as a factor of weight[k, ...].
Tensor per_output(const Tensor& t, const Tensor& weight) {
  Shape shape{t.dim(0)};
  for (int axis = 1; axis < weight.rank(); ++axis) shape = shape.appended(1);
  return reshape(t, shape);
}

/// Sees which map made what each BatchNorm reads.
class Tracer : public LayerObserver {
 public:
  explicit Tracer(Layer& model) {
    model.visit([this](Module& module) {
      if (dynamic_cast<Conv2d*>(&module) == nullptr && dynamic_cast<Linear*>(&module) == nullptr &&
          dynamic_cast<BatchNorm*>(&module) == nullptr) {
        return;
      }
      observed_.push_back(dynamic_cast<Layer*>(&module));
      observed_.back()->attach(*this);
    });
  }
  ~Tracer() override {
    for (Layer* layer : observed_) layer->detach(*this);
  }
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  void on_enter(Layer&, const Tensor&) override {}
  void on_result(Layer& layer, const Tensor& x, const Tensor& y, const Measures&) override {
    ++calls_[&layer];
    const auto* norm = dynamic_cast<const BatchNorm*>(&layer);
    if (norm == nullptr) {
      makers_[y.storage().id()] = &layer;
      alive_.push_back(y);  // so that no other tensor gets its memory
    } else if (const auto at = makers_.find(x.storage().id()); at != makers_.end()) {
      before_[norm] = at->second;
    }
  }
  void on_leave(Layer&) noexcept override {}
  void on_destroy(Layer&) noexcept override {}

  /// The map before a norm; null: something else.
  [[nodiscard]] const Layer* before(const BatchNorm& norm) const {
    const auto at = before_.find(&norm);
    return at == before_.end() ? nullptr : at->second;
  }
  [[nodiscard]] int calls(const Layer& layer) const {
    const auto at = calls_.find(&layer);
    return at == calls_.end() ? 0 : at->second;
  }

 private:
  std::vector<Layer*> observed_;
  std::vector<Tensor> alive_;
  std::map<std::uint64_t, const Layer*> makers_;
  std::map<const BatchNorm*, const Layer*> before_;
  std::map<const Layer*, int> calls_;
};

std::int64_t outputs_of(const Layer& map) {
  const auto* conv = dynamic_cast<const Conv2d*>(&map);
  return conv != nullptr ? conv->o.out : dynamic_cast<const Linear&>(map).o.out;
}

/// Why a norm cannot be folded; empty when it can.
std::string obstacle(const BatchNorm& norm, const Tracer& trace) {
  const Layer* map = trace.before(norm);
  if (!norm.o.track_running_stats) return "has no running statistics";
  if (trace.calls(norm) == 0) return "was not called";
  if (map == nullptr) return "its input is not the output of a Conv2d or Linear";
  if (outputs_of(*map) != norm.o.features) return fmt::format("cuts '{}' otherwise", map->path());
  if (trace.calls(norm) > 1) return "is used more than once";
  if (trace.calls(*map) > 1) return fmt::format("'{}' is used more than once", map->path());
  return "";
}

std::string below(const Module& root, const Module& module) {
  const std::string path = module.path(), top = root.path();
  return top.empty() ? path : path.substr(top.size() + 1);
}

/// The state of the model without its norms.
State folded_state(Layer& model, const Tracer& trace) {
  std::map<std::string, Tensor> values;
  for (const NamedTensor& t : model.state()) values[t.name] = t.value;
  std::vector<std::string> obstacles;
  std::map<const Layer*, std::string> folded_into;
  model.visit([&](Module& module) {
    const auto* norm = dynamic_cast<const BatchNorm*>(&module);
    if (norm == nullptr) return;
    const std::string name = below(model, *norm);
    if (const std::string why = obstacle(*norm, trace); !why.empty()) {
      obstacles.push_back(fmt::format("'{}' {}", name, why));
      return;
    }
    const auto [other, is_first] = folded_into.try_emplace(trace.before(*norm), name);
    if (!is_first) {
      obstacles.push_back(fmt::format("'{}' reads '{}', which '{}' reads too", name,
                                      below(model, *trace.before(*norm)), other->second));
      return;
    }
    for (const NamedTensor& own : norm->state()) values.erase(name + "." + own.name);
    const std::string map = below(model, *trace.before(*norm));
    const auto bias = values.find(map + ".bias");
    const FoldedMap folded = fold_batch_norm(values.at(map + ".weight"),
                                             bias == values.end() ? Tensor() : bias->second, *norm);
    values[map + ".weight"] = folded.weight;
    values[map + ".bias"] = folded.bias;
  });
  STEADY_CHECK(Error, obstacles.empty(), "{}: cannot fold: {}", Op, fmt::join(obstacles, "; "));
  State state;
  for (const auto& [name, value] : values) state.push_back({name, value});
  return state;
}

double largest(const Tensor& t) { return t.numel() == 0 ? 0.0 : max(abs(wide(t))).item(); }

}  // namespace

FoldedMap fold_batch_norm(const Tensor& weight, const Tensor& bias, const BatchNorm& norm) {
  STEADY_CHECK(Error, norm.o.track_running_stats, "{}: the norm has no running statistics", Op);
  STEADY_CHECK(Error, weight.rank() >= 2 && weight.dim(0) == norm.o.features,
               "{}: needs weight [{}, ...]; got weight {}", Op, norm.o.features, describe(weight));
  const NoRecord constants;
  const Shape one{norm.o.features};
  const Tensor gain = norm.weight.defined() ? wide(norm.weight) : Tensor::ones(one, Dtype::F64);
  const Tensor shift = norm.bias.defined() ? wide(norm.bias) : Tensor::zeros(one, Dtype::F64);
  const Tensor old = bias.defined() ? wide(bias) : Tensor::zeros(one, Dtype::F64);
  const Tensor r = gain / sqrt(wide(norm.running_var) + norm.o.eps);
  const Tensor w = wide(weight) * per_output(r, weight);
  const Tensor b = r * (old - wide(norm.running_mean)) + shift;
  return {w.detached_copy(weight.dtype()), b.detached_copy(weight.dtype())};
}

void fold_batch_norm(Layer& model, Layer& into, const Tensor& x) {
  STEADY_CHECK(Error, model.mode() != Mode::Train,
               "{}: needs the model in eval mode: its norms are folded as they are there", Op);
  const NoRecord constants;
  const NoStateUpdate probe;
  Tensor expected;
  {
    const Tracer trace(model);
    expected = model(x);
    into.to(x.dtype());
    into.load(folded_state(model, trace));
  }
  into.freeze();
  const Tensor y = into(x);
  STEADY_CHECK(Error, y.shape() == expected.shape() && y.dtype() == expected.dtype(),
               "{}: the models differ: {} became {}", Op, describe(expected), describe(y));
  const double difference = largest(wide(y) - wide(expected));
  const double tolerance = y.dtype() == Dtype::F64 ? 1e-10 : 1e-3;
  STEADY_CHECK(Error, difference <= tolerance * largest(expected),
               "{}: the outputs differ by {} of {}: is the output of a map used besides its norm?",
               Op, difference, largest(expected));
}

}  // namespace steady
