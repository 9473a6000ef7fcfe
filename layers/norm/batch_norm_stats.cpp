#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/batch_norm_kernel.hpp>
#include <steadygrad/layers/norm/row_stats.hpp>

// From moments of the batch, or from running statistics, to what normalizes; and the running
// update.

namespace steady {

using detail::check_span;

template <class T>
void batch_norm_stats(std::span<const Moments> moments, double eps, std::span<T> stats) {
  const std::size_t channels = moments.size();
  check_span("batch_norm_stats", "stats", stats.size(), 3 * static_cast<std::int64_t>(channels),
             false);
  for (std::size_t c = 0; c < channels; ++c) {
    stats[c] = static_cast<T>(moments[c].mean);
    stats[channels + c] = static_cast<T>(moments[c].mean - static_cast<double>(stats[c]));
    stats[2 * channels + c] = static_cast<T>(1.0 / std::sqrt(moments[c].variance() + eps));
  }
}

template <class T>
void batch_norm_running_stats(std::span<const T> running_mean, std::span<const T> running_var,
                              double eps, std::span<T> stats) {
  const char* op = "batch_norm_running_stats";
  const std::size_t channels = running_mean.size();
  check_span(op, "running_var", running_var.size(), static_cast<std::int64_t>(channels), false);
  check_span(op, "stats", stats.size(), 3 * static_cast<std::int64_t>(channels), false);
  for (std::size_t c = 0; c < channels; ++c) {
    stats[c] = running_mean[c];
    stats[channels + c] = T(0);
    stats[2 * channels + c] =
        static_cast<T>(1.0 / std::sqrt(static_cast<double>(running_var[c]) + eps));
  }
}

template <class T>
void batch_norm_running_update(std::span<const Moments> moments, double momentum,
                               std::span<const T> running_mean, std::span<const T> running_var,
                               std::span<T> new_mean, std::span<T> new_var) {
  const char* op = "batch_norm_running_update";
  const auto channels = static_cast<std::int64_t>(moments.size());
  check_span(op, "running_mean", running_mean.size(), channels, false);
  check_span(op, "running_var", running_var.size(), channels, false);
  check_span(op, "new_mean", new_mean.size(), channels, false);
  check_span(op, "new_var", new_var.size(), channels, false);
  STEADY_CHECK(Error, momentum >= 0 && momentum <= 1,
               "{}: momentum, the weight of the new batch, lies in [0, 1]; got {}", op, momentum);
  for (const Moments& m : moments) {
    STEADY_CHECK(Error, m.n >= 2,
                 "{}: an unbiased variance needs at least two values per channel; got {}", op, m.n);
  }
  const double keep = 1 - momentum;
  for (std::size_t c = 0; c < moments.size(); ++c) {
    const auto mean = static_cast<double>(running_mean[c]);
    const auto var = static_cast<double>(running_var[c]);
    new_mean[c] = static_cast<T>(keep * mean + momentum * moments[c].mean);
    new_var[c] = static_cast<T>(keep * var + momentum * moments[c].unbiased_variance());
  }
}

template void batch_norm_stats(std::span<const Moments>, double, std::span<float>);
template void batch_norm_stats(std::span<const Moments>, double, std::span<double>);
template void batch_norm_running_stats(std::span<const float>, std::span<const float>, double,
                                       std::span<float>);
template void batch_norm_running_stats(std::span<const double>, std::span<const double>, double,
                                       std::span<double>);
template void batch_norm_running_update(std::span<const Moments>, double, std::span<const float>,
                                        std::span<const float>, std::span<float>, std::span<float>);
template void batch_norm_running_update(std::span<const Moments>, double, std::span<const double>,
                                        std::span<const double>, std::span<double>,
                                        std::span<double>);

}  // namespace steady
