#include <steadygrad/optim/sgd.hpp>

#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/optimizer.hpp>
#include <utility>

namespace steady {

Sgd::Sgd(std::vector<Parameter> parameters, const SgdOptions& options)
    : Optimizer(std::move(parameters),
                {"Sgd", options.lr, options.weight_decay, options.decay_roles, options.groups},
                options.momentum == 0.0 ? std::vector<std::string>{}
                                        : std::vector{std::string("momentum_buffer")}),
      o_(options) {
  STEADY_CHECK(Error, o_.momentum >= 0.0 && o_.momentum < 1.0,
               "Sgd: momentum must be in [0, 1); got {}", o_.momentum);
  STEADY_CHECK(Error, std::isfinite(o_.dampening), "Sgd: dampening must be finite; got {}",
               o_.dampening);
  STEADY_CHECK(Error, !o_.nesterov || (o_.momentum > 0.0 && o_.dampening == 0.0),
               "Sgd: nesterov needs momentum > 0 and dampening 0; got momentum {}, dampening {}",
               o_.momentum, o_.dampening);
}

void Sgd::set_momentum(double momentum) {
  STEADY_CHECK(Error, o_.momentum > 0.0 && momentum > 0.0 && momentum < 1.0,
               "Sgd: momentum can change from one value in (0, 1) to another; got {} after {}",
               momentum, o_.momentum);
  o_.momentum = momentum;
}

std::vector<Optimizer::Setting> Sgd::settings() const {
  // An optimizer made without momentum has no buffers for one.
  return {{"momentum", o_.momentum, o_.momentum > 0.0},
          {"dampening", o_.dampening},
          {"nesterov", o_.nesterov ? 1.0 : 0.0}};
}

void Sgd::update(const Move& move) {
  const kernels::SgdStep step{.lr = move.lr,
                              .momentum = o_.momentum,
                              .dampening = o_.dampening,
                              .weight_decay = move.weight_decay,
                              .nesterov = o_.nesterov,
                              .first = move.step == 1};
  dispatch_float("Sgd", move.value.dtype(), [&]<FloatElement T>() {
    const std::span<T> buffer =
        move.slots.empty() ? std::span<T>() : move.slots[0].mutable_data<T>("Sgd");
    kernels::sgd_update<T>(step, move.value.mutable_data<T>("Sgd"), buffer,
                           move.gradient.data<T>());
  });
}

}  // namespace steady
