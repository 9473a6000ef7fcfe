#include <steadygrad/layers/norm/simulated_norm.hpp>

#include <algorithm>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/norm/norm_op.hpp>
#include <type_traits>

namespace steady {
namespace {

using detail::SimulatedRule;
using detail::SimulatedSets;

/// Where a norm keeps its state, in the order of state(); undefined where an option took it away.
std::vector<Tensor*> places(LayerNorm& n) { return {&n.weight, &n.bias}; }
std::vector<Tensor*> places(RmsNorm& n) { return {&n.weight}; }
std::vector<Tensor*> places(BatchNorm& n) {
  return {&n.weight, &n.bias, &n.running_mean, &n.running_var, &n.num_batches_tracked};
}

SimulatedSets rows_of(const Tensor& x, std::int64_t rows, std::int64_t affine) {
  const std::int64_t width = rows == 0 ? 0 : x.numel() / rows;
  return {rows, width, width, 1, affine};
}
SimulatedSets sets_of(const LayerNorm& n, const Tensor& x) {
  const std::int64_t affine = n.o.normalized_shape.numel();
  return rows_of(x, n.o.over_sample ? x.dim(0) : x.numel() / affine, affine);
}
SimulatedSets sets_of(const RmsNorm& n, const Tensor& x) {
  const std::int64_t affine = n.o.normalized_shape.numel();
  return rows_of(x, x.numel() / affine, affine);
}
SimulatedSets sets_of(const BatchNorm& n, const Tensor& x) {
  const std::int64_t c = n.o.features;
  return {x.numel() == 0 ? 0 : c, x.numel() / c, 1, c, c};
}

SimulatedRule rule_of(const RmsNorm& n) {
  return {.centred = false, .unit_offset = n.o.unit_offset, .eps = n.o.eps};
}
SimulatedRule rule_of(const auto& n) {
  return {.centred = true, .unit_offset = false, .eps = n.o.eps};
}

/// `values` in place of those of y; the gradient passes through.
Tensor straight_through(const Tensor& y, Tensor values) {
  return record("simulated_precision", std::move(values), {y}, {},
                [](BackwardCall& call) { call.give(0, call.grad()); });
}

Tensor rounded(LowFormat format, const Tensor& x) {
  Tensor result = Tensor::empty(x.shape(), x.dtype());
  dispatch_float("simulated_precision", x.dtype(), [&]<FloatElement T>() {
    const std::span<T> to = result.mutable_data<T>("simulated_precision");
    std::ranges::transform(x.data<T>(), to.begin(), [&](T v) {
      return static_cast<T>(round_to(format, static_cast<double>(v)));
    });
  });
  return result;
}

template <class N>
Tensor simulated(const N& n, const SimulatedPrecision& precision, const Tensor& x) {
  Tensor bias, mean, var;
  if constexpr (!std::is_same_v<N, RmsNorm>) bias = n.bias;
  if constexpr (std::is_same_v<N, BatchNorm>) {
    if (n.o.track_running_stats && n.mode() != Mode::Train) {
      mean = n.running_mean;
      var = n.running_var;
    }
  }
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  dispatch_float("simulated_precision", x.dtype(), [&]<FloatElement T>() {
    using detail::elements;
    detail::simulate_norm<T>(sets_of(n, x), rule_of(n), precision, elements<T>(x),
                             elements<T>(n.weight), elements<T>(bias), elements<T>(mean),
                             elements<T>(var), y.mutable_data<T>("simulated_precision"));
  });
  return y;
}

}  // namespace

template <class N>
SimulatedNorm<N>::SimulatedNorm(const Options& options)
    : o(options), exact_(std::make_unique<N>(o.norm)) {
  const std::vector<Parameter> parameters = exact_->parameters();
  for (const NamedTensor& entry : exact_->state()) {
    const auto p = std::ranges::find_if(
        parameters, [&](const Parameter& parameter) { return parameter.name == entry.name; });
    mine_.push_back(p == parameters.end() ? &add_buffer(entry.name, entry.value)
                                          : &add_parameter(p->name, p->value, p->role));
  }
}

template <class N>
N& SimulatedNorm<N>::exact() const {
  auto from = mine_.begin();
  for (Tensor* place : places(*exact_)) {
    if (place->defined()) *place = **from++;
  }
  exact_->train(mode() == Mode::Train);
  return *exact_;
}

template <class N>
Tensor SimulatedNorm<N>::forward(const Tensor& x) {
  detail::check_norm_input("SimulatedNorm", x);
  const Tensor stored = straight_through(x, rounded(o.precision.format, x));
  N& norm = exact();
  const Tensor y = norm.forward(stored);
  return straight_through(y, simulated(norm, o.precision, stored.detach()));
}

template <class N>
void SimulatedNorm<N>::measure(const Tensor& x, const MeasureSink& sink) const {
  exact().measure(x, sink);
}

template <class N>
std::string SimulatedNorm<N>::describe() const {
  const std::string text = exact_->describe();
  return fmt::format("{}, {})", text.substr(0, text.size() - 1), to_string(o.precision));
}

template class SimulatedNorm<LayerNorm>;
template class SimulatedNorm<RmsNorm>;
template class SimulatedNorm<BatchNorm>;

}  // namespace steady
