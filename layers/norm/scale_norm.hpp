#pragma once

#include <steadygrad/core/shape.hpp>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/layer.hpp>
#include <string>

namespace steady {

/// ScaleNorm                                             [Nguyen & Salazar 2019]
///   y = g * x / max(|x|, eps),   |x| the Euclidean norm of a row
/// A row is the trailing axes that `normalized_shape` names. x, y: [..., *normalized_shape], f32 or
/// f64. g: a scalar [], or undefined (1). A row shorter than eps >= 0 is divided by eps, a constant
/// to its derivatives. Same in train and eval. First and second derivatives by x and g; a third is
/// refused. Throws ShapeError when x does not end in normalized_shape or g is no scalar.
[[nodiscard]] Tensor scale_norm(const Tensor& x, const Shape& normalized_shape,
                                const Tensor& g = {}, double eps = 1e-5);

/// ScaleNorm with a learned g, at first the square root of the number of features, with which the
/// output has second moment 1. Same in train and eval; freeze() only takes the gradient of g.
class ScaleNorm : public Layer {
 public:
  struct Options {
    Shape normalized_shape{};  ///< trailing axes of x that are one row
    double eps = 1e-5;         ///< >= 0, the least divisor
  };
  /// Throws Error when eps is not finite or negative, ShapeError for an empty normalized_shape and
  /// an extent below 1.
  explicit ScaleNorm(const Options& options);

  /// x: [..., *normalized_shape].
  Tensor forward(const Tensor& x) override;
  /// scale_min, scale_max: range of 1 / max(|x|, eps) over the rows. normalized_mean, _std,
  /// _skewness, _kurtosis: moments of x * scale over all elements.
  void measure(const Tensor& x, const MeasureSink& sink) const override;
  [[nodiscard]] std::string describe() const override;

  const Options o;
  Tensor& g;  ///< [], Role::NormScale
};

}  // namespace steady
