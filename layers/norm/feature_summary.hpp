#pragma once

#include <cstdint>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/norm/column_stats.hpp>
#include <vector>

namespace steady::detail {

/// What fitted scalings know of a stream of batches, per feature and in double. NaN is a missing
/// value: counted, and part of nothing else.
struct FeatureSummary {
  /// With `keep_values` every value stays in memory, 8 bytes each, for exact quantiles.
  FeatureSummary(std::int64_t features, bool keep_values);

  /// Adds a batch [..., features], f32 or f64. Moments as BatchNorm takes them, merged after Chan,
  /// Golub & LeVeque. Throws ShapeError for another shape or dtype, NonFiniteError naming feature
  /// and row for an infinity; then nothing has changed. `op` names the caller.
  void add(const char* op, const Tensor& batch);

  std::int64_t rows = 0;
  std::vector<double> low;       ///< least value; infinity when there is none
  std::vector<double> high;      ///< largest value; -infinity when there is none
  std::vector<Moments> moments;  ///< of the values that are there
  bool keep;
  std::vector<std::vector<double>> kept;  ///< with `keep`: the values that are there
};

/// The q-th quantile, 0 <= q <= 1, of ascending values, at least one: linear between the two that
/// stand around position q (n - 1), as NumPy's default.
[[nodiscard]] double quantile(const std::vector<double>& ascending, double q);

}  // namespace steady::detail
