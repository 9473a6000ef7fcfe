#pragma once

#include <span>
#include <steadygrad/core/dtype.hpp>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/norm/column_stats.hpp>
#include <string_view>

// What the norms say of themselves to a probe: Layer::measure.

namespace steady::detail {

/// Gives NAME_min and NAME_max of values[first], values[first + step], ...; NaN where one is NaN.
template <FloatElement T>
void measure_range(const MeasureSink& sink, std::string_view name, std::span<const T> values,
                   std::int64_t first, std::int64_t step);

/// Gives rstd_min and rstd_max of 1 / sqrt(var + eps); var: f32 or f64, or the biased variances of
/// moments.
void measure_rstd(const MeasureSink& sink, const Tensor& var, double eps);
void measure_rstd(const MeasureSink& sink, std::span<const Moments> moments, double eps);

/// Gives normalized_mean, normalized_std, normalized_skewness and normalized_kurtosis over all
/// elements; skewness and kurtosis are NaN where the spread is zero.
void measure_normalized(const MeasureSink& sink, const Tensor& normalized);

/// For DyT and Derf, of values that lie in [-1, 1]: alpha, saturated (the part of them beyond
/// +-0.99) and the moments as measure_normalized names them.
void measure_squash(const MeasureSink& sink, const Tensor& alpha, const Tensor& squashed);

/// Gives running_mean_gap, running_var_ratio_min and running_var_ratio_max (see
/// BatchNorm::measure); the ratios only where the batch has an unbiased variance.
template <FloatElement T>
void measure_running(const MeasureSink& sink, std::span<const Moments> batch,
                     std::span<const T> running_mean, std::span<const T> running_var, double eps);

}  // namespace steady::detail
