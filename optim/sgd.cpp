#include <steadygrad/optim/sgd.hpp>

#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/optimizer.hpp>
#include <utility>

namespace steady {

Sgd::Sgd(std::vector<Parameter> parameters, const SgdOptions& options)
    : Optimizer(std::move(parameters), options.lr),
      o_(options),
      buffers_(this->parameters().size()) {
  STEADY_CHECK(Error, o_.momentum >= 0.0 && o_.momentum < 1.0,
               "Sgd: momentum must be in [0, 1); got {}", o_.momentum);
  STEADY_CHECK(Error, std::isfinite(o_.dampening), "Sgd: dampening must be finite; got {}",
               o_.dampening);
  STEADY_CHECK(Error, std::isfinite(o_.weight_decay) && o_.weight_decay >= 0.0,
               "Sgd: weight_decay must be finite and not negative; got {}", o_.weight_decay);
  STEADY_CHECK(Error, !o_.nesterov || (o_.momentum > 0.0 && o_.dampening == 0.0),
               "Sgd: nesterov needs momentum > 0 and dampening 0; got momentum {}, dampening {}",
               o_.momentum, o_.dampening);
}

void Sgd::update(std::size_t index, const Tensor& gradient) {
  const Parameter& p = parameters()[index];
  Tensor value = p.value;
  Tensor& buffer = buffers_[index];
  const bool first = !buffer.defined();
  if (first && o_.momentum != 0.0) buffer = Tensor::empty(value.shape(), value.dtype());
  const kernels::SgdStep step{.lr = lr(),
                              .momentum = o_.momentum,
                              .dampening = o_.dampening,
                              .weight_decay = decays(p) ? o_.weight_decay : 0.0,
                              .nesterov = o_.nesterov,
                              .first = first};
  dispatch_float("Sgd", value.dtype(), [&]<FloatElement T>() {
    const std::span<T> momentum = buffer.defined() ? buffer.mutable_data<T>("Sgd") : std::span<T>{};
    kernels::sgd_update<T>(step, value.mutable_data<T>("Sgd"), momentum, gradient.data<T>());
  });
}

}  // namespace steady
