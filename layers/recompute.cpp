#include <steadygrad/layers/recompute.hpp>

#include <algorithm>
#include <cstring>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/state_update.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady {

/// What a forward reads besides its inputs and parameters: modes, counters and buffers of a layer
/// and of everything in it, in the order of visit().
class ForwardState {
 public:
  explicit ForwardState(Module& module) {
    module.visit([&](Module& m) {
      modes_.push_back(m.mode_);
      for (const Module::Counter& counter : m.counters()) counters_.push_back(counter.value);
      for (Module::Entry& entry : m.entries_) {
        if (entry.buffer) buffers_.push_back(&entry.value);
      }
    });
  }

  /// Modes and counters, i64.
  [[nodiscard]] Tensor numbers() const {
    Tensor result = Tensor::empty({std::ssize(modes_) + std::ssize(counters_)}, Dtype::I64);
    auto out = result.mutable_data<std::int64_t>().begin();
    for (const Mode mode : modes_) *out++ = static_cast<std::int64_t>(mode);
    for (const std::uint64_t* counter : counters_) *out++ = static_cast<std::int64_t>(*counter);
    return result;
  }
  [[nodiscard]] bool has_modes(const Tensor& numbers) const {
    const auto given = numbers.data<std::int64_t>();
    return std::ranges::equal(modes_, given.first(modes_.size()), {},
                              [](Mode mode) { return static_cast<std::int64_t>(mode); });
  }
  void set_counters(const Tensor& numbers) const {
    const auto given = numbers.data<std::int64_t>().subspan(modes_.size());
    for (std::size_t i = 0; i < counters_.size(); ++i) {
      *counters_[i] = static_cast<std::uint64_t>(given[i]);
    }
  }
  [[nodiscard]] std::span<Tensor* const> buffers() const { return buffers_; }

 private:
  std::vector<Mode> modes_;
  std::vector<std::uint64_t*> counters_;
  std::vector<Tensor*> buffers_;
};

namespace {

/// Puts counters and buffers back to what they were, while it lives.
class Rewound {
 public:
  Rewound(Module& module, const Tensor& numbers, std::span<const Tensor> buffers)
      : state_(module), now_(state_.numbers()) {
    STEADY_CHECK(Error, state_.has_modes(numbers) && buffers.size() == state_.buffers().size(),
                 "recompute: {} was changed (a mode, or layers in it) between its forward and "
                 "backward",
                 module.describe());
    state_.set_counters(numbers);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      own_.push_back(*state_.buffers()[i]);
      *state_.buffers()[i] = buffers[i];
    }
  }
  ~Rewound() {
    state_.set_counters(now_);
    for (std::size_t i = 0; i < own_.size(); ++i) *state_.buffers()[i] = std::move(own_[i]);
  }
  Rewound(const Rewound&) = delete;
  Rewound& operator=(const Rewound&) = delete;

 private:
  ForwardState state_;
  Tensor now_;
  std::vector<Tensor> own_;
};

/// How the saved tensors lie: inputs, parameters, buffers, then the numbers of ForwardState. The
/// recorded inputs are the first two groups.
struct Plan {
  Layer* layer;
  BlockFunction function;
  int inputs;
  int parameters;
  int buffers;
};

/// The inputs as leaves of another tape. Each has memory of its own where a leaf before it, or a
/// parameter, has the same: a tape knows a leaf by its memory.
std::vector<Tensor> leaves_of(const Plan& plan, const BackwardCall& call) {
  std::vector<Tensor> leaves;
  for (int i = 0; i < plan.inputs; ++i) {
    const Tensor& x = call.saved(i);
    if (!x.defined() || !call.needs(i)) {
      leaves.push_back(x.defined() ? x.detach() : x);
      continue;
    }
    bool shared = false;
    for (int j = 0; j < plan.inputs + plan.parameters; ++j) {
      if (j < i || j >= plan.inputs) shared |= x.shares_storage_with(call.saved(j));
    }
    leaves.push_back((shared ? x.detached_copy() : x.detach()).set_requires_grad());
  }
  return leaves;
}

void run_again(const Plan& plan, BackwardCall& call) {
  STEADY_CHECK(Error, !recording(),
               "recompute: {} keeps nothing for second derivatives; call it without recompute",
               plan.layer->describe());
  const std::vector<Tensor> leaves = leaves_of(plan, call);
  std::vector<Tensor> buffers;
  const int first_buffer = plan.inputs + plan.parameters;
  for (int i = 0; i < plan.buffers; ++i) buffers.push_back(call.saved(first_buffer + i));

  const Rewound rewound(*plan.layer, call.saved(first_buffer + plan.buffers), buffers);
  const std::vector<std::vector<Tensor*>> places = parameter_places(*plan.layer);
  STEADY_CHECK(Error, std::ssize(places) == plan.parameters,
               "recompute: {} had {} parameters in its forward; got {} in backward",
               plan.layer->describe(), plan.parameters, places.size());
  std::vector<Tensor> parameters;
  for (int i = plan.inputs; i < first_buffer; ++i) parameters.push_back(call.saved(i));
  const ParameterExchange exchange(places, parameters);
  const NoStateUpdate keep_state;
  const RecordAgain record;
  Tape tape;
  std::vector<Tensor> outputs, cotangents;
  {
    const std::vector<Tensor> made = plan.function(*plan.layer, leaves);
    for (std::size_t i = 0; i < made.size(); ++i) {
      const Tensor& gradient = call.grad(static_cast<int>(i));
      if (!gradient.defined()) continue;
      outputs.push_back(made[i]);
      cotangents.push_back(gradient);
    }
  }
  Gradients gradients = tape.backward(outputs, cotangents);
  const auto give = [&](int input, const Tensor& leaf) {
    if (Tensor* gradient = gradients.find(leaf)) call.give(input, std::move(*gradient));
  };
  for (int i = 0; i < plan.inputs; ++i) {
    if (call.needs(i)) give(i, leaves[static_cast<std::size_t>(i)]);
  }
  for (int i = plan.inputs; i < first_buffer; ++i) {
    if (call.needs(i)) give(i, call.saved(i));
  }
}

bool is_observed(Layer& layer) {
  bool observed = false;
  layer.visit([&](Module& module) {
    const auto* part = dynamic_cast<const Layer*>(&module);
    observed |= part != nullptr && part->observed();
  });
  return observed;
}

}  // namespace

std::vector<Tensor> recompute(Layer& layer, std::span<const Tensor> inputs,
                              BlockFunction function) {
  if (!recording() || is_observed(layer)) return function(layer, inputs);
  std::vector<Tensor> differentiable(inputs.begin(), inputs.end());
  for (const Parameter& parameter : layer.parameters()) differentiable.push_back(parameter.value);
  if (std::ranges::none_of(differentiable, needs_gradient)) return function(layer, inputs);

  const ForwardState state(layer);
  std::vector<Tensor> saved = differentiable;
  for (const Tensor* buffer : state.buffers()) saved.push_back(buffer->detached_copy());
  saved.push_back(state.numbers());
  std::vector<Tensor> outputs;
  {
    const NoRecord pause;
    outputs = function(layer, inputs);
  }
  // A block that hands on what it was given: the tape wants values of its own.
  for (Tensor& y : outputs) {
    const bool known = y.defined() && (y.body().serial != 0 || y.body().requires_grad);
    if (known) y = y.detached_copy();
  }
  const Plan plan{.layer = &layer,
                  .function = function,
                  .inputs = static_cast<int>(inputs.size()),
                  .parameters = static_cast<int>(differentiable.size() - inputs.size()),
                  .buffers = static_cast<int>(state.buffers().size())};
  detail::record_closure("recompute", outputs, differentiable, saved,
                         [plan](BackwardCall& call) { run_again(plan, call); });
  return outputs;
}

Tensor recompute(Layer& layer, const Tensor& x) {
  return recompute(layer, {&x, 1},
                   [](Layer& again, std::span<const Tensor> inputs) {
                     return std::vector<Tensor>{again(inputs[0])};
                   })
      .front();
}

}  // namespace steady
