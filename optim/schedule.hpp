#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace steady {

/// The learning rate of the next update as a pure function of the updates completed so far (0 for
/// the first): resuming needs that number and nothing else.
///
///   optimizer.set_lr(schedule(optimizer.updates()));
using Schedule = std::function<double(std::int64_t completed)>;

/// lr(s) = base
[[nodiscard]] Schedule constant_schedule(double base);

/// lr(s) = floor + (base - floor) * (1 + cos(pi * s / total)) / 2, floor from s = total on.
/// [Loshchilov & Hutter 2017, eq. 5]
[[nodiscard]] Schedule cosine_schedule(double base, std::int64_t total, double floor = 0.0);

/// lr(s) = base * gamma^floor(s / size)
[[nodiscard]] Schedule step_schedule(double base, std::int64_t size, double gamma = 0.1);

/// lr(s) = base * gamma^(number of milestones <= s). The milestones rise.
[[nodiscard]] Schedule multistep_schedule(double base, std::vector<std::int64_t> milestones,
                                          double gamma = 0.1);

/// lr(s) = base * gamma^s
[[nodiscard]] Schedule exponential_schedule(double base, double gamma);

/// Where a linear schedule begins and ends, as shares of its base rate.
struct LinearEnds {
  double start = 1.0;
  double end = 0.0;
};
/// lr(s) = base * (end + (start - end) * (total - s) / total), base * end from s = total on.
[[nodiscard]] Schedule linear_schedule(double base, std::int64_t total, LinearEnds ends = {});

/// How a warm-up of W updates climbs to the peak; s = updates completed, s < W.
enum class Warmup {
  ReachPeak,  ///< (s + 1) / W: the first rate is not 0, the last warm-up update has the peak
  BelowPeak,  ///< (s + 1) / (W + 1): the update after the warm-up has the peak (nanoGPT)
  FromZero    ///< s / W: the first update moves nothing (Hugging Face, PyTorch's LambdaLR recipes)
};
/// lr(s) = after(0) * (the form's share) for s < steps, then after(s - steps).
[[nodiscard]] Schedule warmup_schedule(std::int64_t steps, Schedule after,
                                       Warmup form = Warmup::ReachPeak);

/// A warm-up of `warmup` updates to `base`, then a cosine to `floor` at update `total`:
/// warmup_schedule(warmup, cosine_schedule(base, total - warmup, floor), form). total > warmup.
[[nodiscard]] Schedule warmup_cosine_schedule(double base, std::int64_t warmup, std::int64_t total,
                                              double floor = 0.0, Warmup form = Warmup::ReachPeak);

/// Options of one_cycle_schedule; the defaults are PyTorch's.
struct OneCycleOptions {
  double max_lr = 0.1;
  std::int64_t total = 0;         ///< updates of the cycle, at least 2
  double rising = 0.3;            ///< share of the updates that climb, in (0, 1)
  bool linear = false;            ///< straight lines instead of half cosines
  double div_factor = 25.0;       ///< first rate = max_lr / div_factor
  double final_div_factor = 1e4;  ///< last rate = first rate / final_div_factor
  double base_momentum = 0.85;    ///< at max_lr
  double max_momentum = 0.95;     ///< at the first and the last rate
};
/// The two schedules of a cycle.
struct OneCycle {
  Schedule lr;
  Schedule momentum;  ///< for Sgd::set_momentum or Adam::set_beta1
};
/// The rate climbs from max_lr / div_factor to max_lr at s = rising * total - 1 and falls to its
/// last value at s = total - 1, where it stays; the momentum goes the other way.
/// [Smith & Topin 2017] Throws Error for options out of range.
[[nodiscard]] OneCycle one_cycle_schedule(const OneCycleOptions& options);

}  // namespace steady
