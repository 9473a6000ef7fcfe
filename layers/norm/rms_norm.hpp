#pragma once

#include <steadygrad/core/shape.hpp>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/norm/sum_and_norm.hpp>
#include <string>

namespace steady {

/// Root mean square normalization                       [Zhang & Sennrich 2019, eq. 4]
///   y = x / sqrt(mean(x^2) + eps) * weight,  or * (1 + weight) with unit_offset (Gemma)
/// The mean is of one row: the trailing axes that `normalized_shape` names. x, y:
/// [..., *normalized_shape], f32 or f64. weight: exactly normalized_shape, or undefined (gain 1).
/// eps >= 0 stands inside the root. Same in train and eval. First and second derivatives by x and
/// weight; a third is refused. Throws ShapeError when x does not end in normalized_shape or weight
/// has another shape.
[[nodiscard]] Tensor rms_norm(const Tensor& x, const Shape& normalized_shape,
                              const Tensor& weight = {}, double eps = 1e-6,
                              bool unit_offset = false);

/// x = left + right and the RMS norm of x, in one pass: what a residual stream needs. left, right:
/// of one shape and dtype. The bits, and those of the gradients, are those of an addition and an
/// rms_norm; where x is read again, its gradient joins the norm's in the same pass.
[[nodiscard]] SumAndNorm add_rms_norm(const Tensor& left, const Tensor& right,
                                      const Shape& normalized_shape, const Tensor& weight = {},
                                      double eps = 1e-6, bool unit_offset = false);

/// Root mean square normalization with a learned weight: ones at first, zeros with unit_offset.
/// Same in train and eval; freeze() only takes the gradient of the weight.
class RmsNorm : public Layer {
 public:
  struct Options {
    Shape normalized_shape{};  ///< trailing axes of x that are one row
    double eps = 1e-6;         ///< >= 0, inside the root
    bool affine = true;        ///< false: no weight
    bool unit_offset = false;  ///< the gain is 1 + weight (Gemma); needs affine
  };
  /// Throws Error when eps is not finite or negative and for unit_offset without affine, ShapeError
  /// for an empty normalized_shape and an extent below 1.
  explicit RmsNorm(const Options& options);

  /// x: [..., *normalized_shape].
  Tensor forward(const Tensor& x) override;
  /// x + added and the norm of it, in one pass. Unlike a call it shows its observers nothing of
  /// use: see observed().
  [[nodiscard]] SumAndNorm of_sum(const Tensor& x, const Tensor& added);
  /// rstd_min, rstd_max: range of 1 / sqrt(mean(x^2) + eps) over the rows.
  /// normalized_mean, _std, _skewness, _kurtosis (3 for a normal distribution): moments of
  /// x * rstd over all elements.
  void measure(const Tensor& x, const MeasureSink& sink) const override;
  [[nodiscard]] std::string describe() const override;

  const Options o;
  Tensor& weight;  ///< [*normalized_shape], Role::NormScale; undefined without affine
};

}  // namespace steady
