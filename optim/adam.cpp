#include <steadygrad/optim/adam.hpp>

#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/optimizer.hpp>
#include <utility>

namespace steady {
namespace {

std::vector<std::string> adam_slots(bool amsgrad) {
  std::vector<std::string> names{"exp_avg", "exp_avg_sq"};
  if (amsgrad) names.emplace_back("max_exp_avg_sq");
  return names;
}

void check_beta(const char* name, const char* option, double beta) {
  STEADY_CHECK(Error, beta >= 0.0 && beta < 1.0, "{}: {} must be in [0, 1); got {}", name, option,
               beta);
}

}  // namespace

namespace detail {

AdamBase::AdamBase(const char* name, bool decoupled, std::vector<Parameter> parameters,
                   const AdamOptions& options)
    : Optimizer(std::move(parameters),
                {name, options.lr, options.weight_decay, options.decay_roles, options.groups},
                adam_slots(options.amsgrad)),
      o_(options),
      name_(name),
      decoupled_(decoupled) {
  check_beta(name, "beta1", o_.beta1);
  check_beta(name, "beta2", o_.beta2);
  STEADY_CHECK(Error, std::isfinite(o_.eps) && o_.eps >= 0.0,
               "{}: eps must be finite and not negative; got {}", name, o_.eps);
}

void AdamBase::set_beta1(double beta1) {
  check_beta(name_, "beta1", beta1);
  o_.beta1 = beta1;
}

std::vector<Optimizer::Setting> AdamBase::settings() const {
  return {{"beta1", o_.beta1, true},
          {"beta2", o_.beta2},
          {"eps", o_.eps},
          {"amsgrad", o_.amsgrad ? 1.0 : 0.0}};
}

void AdamBase::update(const Move& move) {
  const auto t = static_cast<double>(move.step);
  const kernels::AdamStep step{.beta1 = o_.beta1,
                               .beta2 = o_.beta2,
                               .eps = o_.eps,
                               .l2 = decoupled_ ? 0.0 : move.weight_decay,
                               .keep = decoupled_ ? 1.0 - move.lr * move.weight_decay : 1.0,
                               .size = move.lr / (1.0 - std::pow(o_.beta1, t)),
                               .root = 1.0 / std::sqrt(1.0 - std::pow(o_.beta2, t))};
  dispatch_float(name_, move.value.dtype(), [&]<FloatElement T>() {
    const auto slot = [&](std::size_t k) { return move.slots[k].mutable_data<T>(name_); };
    kernels::adam_update<T>(step, move.value.mutable_data<T>(name_), slot(0), slot(1),
                            o_.amsgrad ? slot(2) : std::span<T>(), move.gradient.data<T>());
  });
}

}  // namespace detail

AdamW::AdamW(std::vector<Parameter> parameters, const AdamWOptions& options)
    : AdamBase("AdamW", true, std::move(parameters),
               {options.lr, options.beta1, options.beta2, options.eps, options.weight_decay,
                options.amsgrad, options.decay_roles, options.groups}) {}

AdamWOptions AdamW::options() const {
  return {o_.lr,           o_.beta1,   o_.beta2,       o_.eps,
          o_.weight_decay, o_.amsgrad, o_.decay_roles, o_.groups};
}

}  // namespace steady
