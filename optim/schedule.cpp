#include <steadygrad/optim/schedule.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <steadygrad/core/error.hpp>
#include <utility>

namespace steady {
namespace {

void check_rate(const char* name, double rate) {
  STEADY_CHECK(Error, std::isfinite(rate) && rate >= 0.0,
               "{}: rates must be finite and not negative; got {}", name, rate);
}

void check_length(const char* name, const char* option, std::int64_t length) {
  STEADY_CHECK(Error, length >= 1, "{}: {} must be at least 1; got {}", name, option, length);
}

}  // namespace

Schedule constant_schedule(double base) {
  check_rate("constant_schedule", base);
  return [base](std::int64_t) { return base; };
}

Schedule cosine_schedule(double base, std::int64_t total, double floor) {
  check_rate("cosine_schedule", base);
  check_rate("cosine_schedule", floor);
  check_length("cosine_schedule", "total", total);
  return [=](std::int64_t s) {
    const double part = static_cast<double>(std::min(s, total)) / static_cast<double>(total);
    return floor + (base - floor) * (1.0 + std::cos(std::numbers::pi * part)) / 2.0;
  };
}

Schedule step_schedule(double base, std::int64_t size, double gamma) {
  check_rate("step_schedule", base);
  check_rate("step_schedule", gamma);
  check_length("step_schedule", "size", size);
  return [=](std::int64_t s) { return base * std::pow(gamma, static_cast<double>(s / size)); };
}

Schedule multistep_schedule(double base, std::vector<std::int64_t> milestones, double gamma) {
  check_rate("multistep_schedule", base);
  check_rate("multistep_schedule", gamma);
  STEADY_CHECK(
      Error,
      std::ranges::adjacent_find(milestones, std::ranges::greater_equal{}) == milestones.end(),
      "multistep_schedule: the milestones must rise");
  return [=, milestones = std::move(milestones)](std::int64_t s) {
    const auto passed = std::ranges::upper_bound(milestones, s) - milestones.begin();
    return base * std::pow(gamma, static_cast<double>(passed));
  };
}

Schedule exponential_schedule(double base, double gamma) {
  check_rate("exponential_schedule", base);
  check_rate("exponential_schedule", gamma);
  return [=](std::int64_t s) { return base * std::pow(gamma, static_cast<double>(s)); };
}

Schedule linear_schedule(double base, std::int64_t total, LinearEnds ends) {
  check_rate("linear_schedule", base);
  check_rate("linear_schedule", ends.start);
  check_rate("linear_schedule", ends.end);
  check_length("linear_schedule", "total", total);
  return [=](std::int64_t s) {
    const auto left = static_cast<double>(std::max<std::int64_t>(total - s, 0));
    return base * ends.end + base * (ends.start - ends.end) * left / static_cast<double>(total);
  };
}

Schedule warmup_schedule(std::int64_t steps, Schedule after, Warmup form) {
  STEADY_CHECK(Error, steps >= 0, "warmup_schedule: steps must not be negative; got {}", steps);
  STEADY_CHECK(Error, after != nullptr, "warmup_schedule: needs a schedule to follow");
  const double first = form == Warmup::FromZero ? 0.0 : 1.0;
  const double length = static_cast<double>(steps) + (form == Warmup::BelowPeak ? 1.0 : 0.0);
  return [=, after = std::move(after)](std::int64_t s) {
    if (s >= steps) return after(s - steps);
    return after(0) * (static_cast<double>(s) + first) / length;
  };
}

Schedule warmup_cosine_schedule(double base, std::int64_t warmup, std::int64_t total, double floor,
                                Warmup form) {
  STEADY_CHECK(Error, warmup >= 0 && total > warmup,
               "warmup_cosine_schedule: needs 0 <= warmup < total; got {} and {}", warmup, total);
  return warmup_schedule(warmup, cosine_schedule(base, total - warmup, floor), form);
}

}  // namespace steady
