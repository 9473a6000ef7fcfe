#pragma once

#include <cstdint>
#include <functional>

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

/// lr(s) = base * (total - s) / total, 0 from s = total on.
[[nodiscard]] Schedule linear_schedule(double base, std::int64_t total);

/// The first `steps` updates climb to the rate of `after`: lr(s) = after(0) * (s + 1) / steps for
/// s < steps, then after(s - steps). The first rate is not 0 and the peak is reached.
[[nodiscard]] Schedule warmup_schedule(std::int64_t steps, Schedule after);

}  // namespace steady
