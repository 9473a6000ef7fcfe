#pragma once

#include <cstdint>
#include <steadygrad/core/shape.hpp>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/layer.hpp>
#include <string>

namespace steady {

/// Partial root mean square normalization, pRMSNorm     [Zhang & Sennrich 2019]
///   y = x / sqrt(sum of x_i^2 over i < k / k + eps) * weight,   k = ceil(p * features)
/// The mean square is estimated from the first k elements of a row; all are divided by it. A row is
/// the trailing axes that `normalized_shape` names. x, y: [..., *normalized_shape], f32 or f64.
/// weight: exactly normalized_shape, or undefined (gain 1). p in (0, 1]; with p = 1 it is RMSNorm.
/// eps >= 0 stands inside the root. Same in train and eval. First and second derivatives by x and
/// weight; a third is refused. Throws ShapeError when x does not end in normalized_shape or weight
/// has another shape, Error for p or eps out of range.
[[nodiscard]] Tensor partial_rms_norm(const Tensor& x, const Shape& normalized_shape,
                                      const Tensor& weight = {}, double p = 0.0625,
                                      double eps = 1e-6);

/// k = ceil(p * features), at least 1: how many of a row's elements partial_rms_norm measures.
[[nodiscard]] std::int64_t partial_rms_count(double p, std::int64_t features);

/// Partial RMSNorm with a learned weight, ones at first. Same in train and eval; freeze() only
/// takes the gradient of the weight.
class PartialRmsNorm : public Layer {
 public:
  struct Options {
    Shape normalized_shape{};  ///< trailing axes of x that are one row
    double p = 0.0625;         ///< the part of a row that is measured, in (0, 1]
    double eps = 1e-6;         ///< >= 0, inside the root
    bool affine = true;        ///< false: no weight
  };
  /// Throws Error for p and eps out of range, ShapeError for an empty normalized_shape and an
  /// extent below 1.
  explicit PartialRmsNorm(const Options& options);

  /// x: [..., *normalized_shape].
  Tensor forward(const Tensor& x) override;
  /// scale_min, scale_max: range of 1 / sqrt(mean square of the first k + eps) over the rows.
  /// normalized_mean, _std, _skewness, _kurtosis: moments of x * scale over all elements.
  void measure(const Tensor& x, const MeasureSink& sink) const override;
  [[nodiscard]] std::string describe() const override;

  const Options o;
  Tensor& weight;  ///< [*normalized_shape], Role::NormScale; undefined without affine
};

}  // namespace steady
