#include <steadygrad/layers/norm/norm_measure.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <steadygrad/core/kernels/tensor_stats.hpp>
#include <string>
#include <vector>

namespace steady::detail {
namespace {

/// Smallest and largest of some numbers, NaN where one is NaN.
class Range {
 public:
  void add(double v) {
    low_ = v < low_ || std::isnan(v) ? v : low_;
    high_ = v > high_ || std::isnan(v) ? v : high_;
  }
  void give(const MeasureSink& sink, std::string_view name) const {
    sink(std::string(name) + "_min", low_);
    sink(std::string(name) + "_max", high_);
  }

 private:
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
};

}  // namespace

template <FloatElement T>
void measure_range(const MeasureSink& sink, std::string_view name, std::span<const T> values,
                   std::int64_t first, std::int64_t step) {
  if (first >= std::ssize(values)) return;
  Range range;
  for (std::int64_t i = first; i < std::ssize(values); i += step) {
    range.add(static_cast<double>(values[static_cast<std::size_t>(i)]));
  }
  range.give(sink, name);
}

void measure_rstd(const MeasureSink& sink, const Tensor& var, double eps) {
  Range range;
  const Tensor wide = var.detached_copy(Dtype::F64);
  for (const double v : wide.data<double>()) range.add(1 / std::sqrt(v + eps));
  range.give(sink, "rstd");
}

void measure_rstd(const MeasureSink& sink, std::span<const Moments> moments, double eps) {
  Range range;
  for (const Moments& m : moments) range.add(1 / std::sqrt(m.variance() + eps));
  range.give(sink, "rstd");
}

void measure_normalized(const MeasureSink& sink, const Tensor& normalized) {
  if (normalized.numel() == 0) return;
  const std::array<double, 4> sums = dispatch_float(
      "measure", normalized.dtype(),
      [&]<FloatElement T>() { return kernels::power_sums<T>(normalized.data<T>()); });
  const auto n = static_cast<double>(normalized.numel());
  const double m = sums[0] / n;
  const double s2 = sums[1] / n;
  const double s3 = sums[2] / n;
  const double s4 = sums[3] / n;
  // Central moments from raw ones; the values are of order one, so no digits are lost.
  const double variance = std::max(0.0, s2 - m * m);
  const double third = s3 - 3 * m * s2 + 2 * m * m * m;
  const double fourth = s4 - 4 * m * s3 + 6 * m * m * s2 - 3 * m * m * m * m;
  sink("normalized_mean", m);
  sink("normalized_std", std::sqrt(variance));
  sink("normalized_skewness", third / (variance * std::sqrt(variance)));
  sink("normalized_kurtosis", fourth / (variance * variance));
}

void measure_squash(const MeasureSink& sink, const Tensor& alpha, const Tensor& squashed) {
  sink("alpha", alpha.item());
  if (squashed.numel() == 0) return;
  const auto saturated = dispatch_float("measure", squashed.dtype(), [&]<FloatElement T>() {
    return std::ranges::count_if(squashed.data<T>(), [](T v) { return std::abs(v) > T(0.99); });
  });
  sink("saturated", static_cast<double>(saturated) / static_cast<double>(squashed.numel()));
  measure_normalized(sink, squashed);
}

template <FloatElement T>
void measure_running(const MeasureSink& sink, std::span<const Moments> batch,
                     std::span<const T> running_mean, std::span<const T> running_var, double eps) {
  double gap = 0;
  Range ratio;
  for (std::size_t c = 0; c < batch.size(); ++c) {
    const double var = static_cast<double>(running_var[c]) + eps;
    const double d = batch[c].mean - static_cast<double>(running_mean[c]);
    gap += d * d / var;
    ratio.add((batch[c].unbiased_variance() + eps) / var);
  }
  sink("running_mean_gap", std::sqrt(gap / static_cast<double>(batch.size())));
  if (batch.front().n >= 2) ratio.give(sink, "running_var_ratio");
}

template void measure_range(const MeasureSink&, std::string_view, std::span<const float>,
                            std::int64_t, std::int64_t);
template void measure_range(const MeasureSink&, std::string_view, std::span<const double>,
                            std::int64_t, std::int64_t);
template void measure_running(const MeasureSink&, std::span<const Moments>, std::span<const float>,
                              std::span<const float>, double);
template void measure_running(const MeasureSink&, std::span<const Moments>, std::span<const double>,
                              std::span<const double>, double);

}  // namespace steady::detail
