#pragma once

#include <steadygrad/core/shape.hpp>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/layer.hpp>
#include <string>

namespace steady {

/// L2 normalization: rows of length 1
///   y = x / max(|x|, eps),   |x| the Euclidean norm of a row
/// A row is the trailing axes that `normalized_shape` names. x, y: [..., *normalized_shape], f32 or
/// f64. A row shorter than eps >= 0 is divided by eps, a constant to its derivatives: a row of
/// zeros stays one and passes dy / eps on. Same in train and eval. First and second derivatives; a
/// third is refused. Throws ShapeError when x does not end in normalized_shape.
[[nodiscard]] Tensor l2_normalize(const Tensor& x, const Shape& normalized_shape,
                                  double eps = 1e-12);

/// L2 normalization as a layer, which learns nothing. Same in train and eval.
class L2Normalize : public Layer {
 public:
  struct Options {
    Shape normalized_shape{};  ///< trailing axes of x that are one row
    double eps = 1e-12;        ///< >= 0, the least divisor
  };
  /// Throws Error when eps is not finite or negative, ShapeError for an empty normalized_shape and
  /// an extent below 1.
  explicit L2Normalize(const Options& options);

  /// x: [..., *normalized_shape].
  Tensor forward(const Tensor& x) override;
  /// scale_min, scale_max: range of 1 / max(|x|, eps) over the rows. normalized_mean, _std,
  /// _skewness, _kurtosis: moments of y over all elements.
  void measure(const Tensor& x, const MeasureSink& sink) const override;
  [[nodiscard]] std::string describe() const override;

  const Options o;
};

}  // namespace steady
