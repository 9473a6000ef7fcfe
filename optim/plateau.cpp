#include <steadygrad/optim/plateau.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/optim/state_loader.hpp>

namespace steady {

ReduceOnPlateau::ReduceOnPlateau(const PlateauOptions& options)
    : o_(options),
      best_(std::numeric_limits<double>::infinity() * (options.higher_is_better ? -1.0 : 1.0)) {
  STEADY_CHECK(Error, o_.factor > 0.0 && o_.factor < 1.0,
               "ReduceOnPlateau: factor must be in (0, 1); got {}", o_.factor);
  const auto check = [](const char* option, double value) {
    STEADY_CHECK(Error, std::isfinite(value) && value >= 0.0,
                 "ReduceOnPlateau: {} must be finite and not negative; got {}", option, value);
  };
  check("patience", static_cast<double>(o_.patience));
  check("threshold", o_.threshold);
  check("cooldown", static_cast<double>(o_.cooldown));
  check("min_lr", o_.min_lr);
  check("min_change", o_.min_change);
}

bool ReduceOnPlateau::better(double metric) const {
  const double sign = o_.higher_is_better ? 1.0 : -1.0;
  const double bar =
      o_.absolute_threshold ? best_ + sign * o_.threshold : best_ * (1.0 + sign * o_.threshold);
  return o_.higher_is_better ? metric > bar : metric < bar;
}

double ReduceOnPlateau::report(double lr, double metric) {
  if (better(metric)) {
    best_ = metric;
    bad_reports_ = 0;
  } else {
    ++bad_reports_;
  }
  if (cooldown_left_ > 0) {
    --cooldown_left_;
    bad_reports_ = 0;
  }
  if (bad_reports_ <= o_.patience) return lr;
  bad_reports_ = 0;
  cooldown_left_ = o_.cooldown;
  const double reduced = std::max(lr * o_.factor, o_.min_lr);
  return lr - reduced > o_.min_change ? reduced : lr;
}

State ReduceOnPlateau::state() const {
  return {{"best", Tensor::scalar(best_, Dtype::F64)},
          {"bad_reports", detail::count_tensor(bad_reports_)},
          {"cooldown_left", detail::count_tensor(cooldown_left_)}};
}

std::function<void()> ReduceOnPlateau::prepare_restore(const CheckpointPart& part) {
  detail::StateLoader loader("ReduceOnPlateau", part.tensors);
  for (const auto& [name, value] : part.values) loader.refuse(name);
  const Tensor best = loader.take("best", Shape{}, Dtype::F64);
  const std::int64_t bad_reports = loader.take_count("bad_reports", 0);
  const std::int64_t cooldown_left = loader.take_count("cooldown_left", 0);
  loader.finish();
  return [this, best = best.item(), bad_reports, cooldown_left] {
    best_ = best;
    bad_reports_ = bad_reports;
    cooldown_left_ = cooldown_left;
  };
}

}  // namespace steady
