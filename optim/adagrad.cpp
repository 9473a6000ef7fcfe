#include <steadygrad/optim/adagrad.hpp>

#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/optimizer.hpp>
#include <utility>

namespace steady {

Adagrad::Adagrad(std::vector<Parameter> parameters, const AdagradOptions& options)
    : Optimizer(std::move(parameters),
                {"Adagrad", options.lr, options.weight_decay, options.decay_roles, options.groups},
                {"sum"}),
      o_(options) {
  const auto check = [](const char* option, double value) {
    STEADY_CHECK(Error, std::isfinite(value) && value >= 0.0,
                 "Adagrad: {} must be finite and not negative; got {}", option, value);
  };
  check("lr_decay", o_.lr_decay);
  check("initial_accumulator_value", o_.initial_accumulator_value);
  check("eps", o_.eps);
}

std::vector<Optimizer::Setting> Adagrad::settings() const {
  return {{"lr_decay", o_.lr_decay},
          {"initial_accumulator_value", o_.initial_accumulator_value},
          {"eps", o_.eps}};
}

void Adagrad::update(const Move& move) {
  const double age = static_cast<double>(move.step - 1);
  const kernels::AdagradStep step{
      .lr = move.lr / (1.0 + age * o_.lr_decay), .eps = o_.eps, .l2 = move.weight_decay};
  dispatch_float("Adagrad", move.value.dtype(), [&]<FloatElement T>() {
    kernels::adagrad_update<T>(step, move.value.mutable_data<T>("Adagrad"),
                               move.slots[0].mutable_data<T>("Adagrad"), move.gradient.data<T>());
  });
}

}  // namespace steady
