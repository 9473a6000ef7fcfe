#include <algorithm>
#include <cmath>
#include <numbers>
#include <steadygrad/core/error.hpp>
#include <steadygrad/optim/schedule.hpp>

namespace steady {
namespace {

void check_options(const OneCycleOptions& o) {
  const auto positive = [](const char* option, double value) {
    STEADY_CHECK(Error, std::isfinite(value) && value > 0.0,
                 "one_cycle_schedule: {} must be finite and positive; got {}", option, value);
  };
  positive("max_lr", o.max_lr);
  positive("div_factor", o.div_factor);
  positive("final_div_factor", o.final_div_factor);
  STEADY_CHECK(Error, o.total >= 2, "one_cycle_schedule: total must be at least 2; got {}",
               o.total);
  STEADY_CHECK(Error, o.rising > 0.0 && o.rising < 1.0,
               "one_cycle_schedule: rising must be in (0, 1); got {}", o.rising);
  STEADY_CHECK(Error,
               o.base_momentum >= 0.0 && o.base_momentum <= o.max_momentum && o.max_momentum < 1.0,
               "one_cycle_schedule: needs 0 <= base_momentum <= max_momentum < 1; got {} and {}",
               o.base_momentum, o.max_momentum);
}

/// From `first` to `peak` at s = top, on to `last` at s = end.
Schedule there_and_back(double first, double peak, double last, double top, double end,
                        bool linear) {
  return [=](std::int64_t completed) {
    const double s = std::min(static_cast<double>(completed), end);
    const bool up = s <= top;
    // A climb shorter than one update (top <= 0) is over at once.
    const double part =
        up ? (top > 0.0 ? s / top : 1.0) : (s - std::max(top, 0.0)) / (end - std::max(top, 0.0));
    const double from = up ? first : peak;
    const double to = up ? peak : last;
    if (linear) return from + (to - from) * part;
    return to + (from - to) / 2.0 * (1.0 + std::cos(std::numbers::pi * part));
  };
}

}  // namespace

OneCycle one_cycle_schedule(const OneCycleOptions& options) {
  check_options(options);
  const OneCycleOptions& o = options;
  const double end = static_cast<double>(o.total - 1);
  const double top = o.rising * static_cast<double>(o.total) - 1.0;
  const double first = o.max_lr / o.div_factor;
  const double last = first / o.final_div_factor;
  return {there_and_back(first, o.max_lr, last, top, end, o.linear),
          there_and_back(o.max_momentum, o.base_momentum, o.max_momentum, top, end, o.linear)};
}

}  // namespace steady
