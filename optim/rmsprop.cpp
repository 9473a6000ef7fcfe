#include <steadygrad/optim/rmsprop.hpp>

#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/optimizer.hpp>
#include <utility>

namespace steady {
namespace {

std::vector<std::string> rmsprop_slots(const RmsPropOptions& o) {
  std::vector<std::string> names{"square_avg"};
  if (o.centered) names.emplace_back("grad_avg");
  if (o.momentum != 0.0) names.emplace_back("momentum_buffer");
  return names;
}

}  // namespace

RmsProp::RmsProp(std::vector<Parameter> parameters, const RmsPropOptions& options)
    : Optimizer(std::move(parameters),
                {"RmsProp", options.lr, options.weight_decay, options.decay_roles, options.groups},
                rmsprop_slots(options)),
      o_(options) {
  STEADY_CHECK(Error, o_.alpha >= 0.0 && o_.alpha < 1.0, "RmsProp: alpha must be in [0, 1); got {}",
               o_.alpha);
  STEADY_CHECK(Error, o_.momentum >= 0.0 && o_.momentum < 1.0,
               "RmsProp: momentum must be in [0, 1); got {}", o_.momentum);
  STEADY_CHECK(Error, std::isfinite(o_.eps) && o_.eps >= 0.0,
               "RmsProp: eps must be finite and not negative; got {}", o_.eps);
}

std::vector<Optimizer::Setting> RmsProp::settings() const {
  return {{"alpha", o_.alpha},
          {"eps", o_.eps},
          {"momentum", o_.momentum},
          {"centered", o_.centered ? 1.0 : 0.0}};
}

void RmsProp::update(const Move& move) {
  const kernels::RmsPropStep step{.lr = move.lr,
                                  .alpha = o_.alpha,
                                  .eps = o_.eps,
                                  .l2 = move.weight_decay,
                                  .momentum = o_.momentum};
  dispatch_float("RmsProp", move.value.dtype(), [&]<FloatElement T>() {
    const auto slot = [&](std::size_t k) { return move.slots[k].mutable_data<T>("RmsProp"); };
    const std::span<T> mean = o_.centered ? slot(1) : std::span<T>();
    const std::span<T> buffer = o_.momentum != 0.0 ? slot(move.slots.size() - 1) : std::span<T>();
    kernels::rmsprop_update<T>(step, move.value.mutable_data<T>("RmsProp"), slot(0), mean, buffer,
                               move.gradient.data<T>());
  });
}

}  // namespace steady
