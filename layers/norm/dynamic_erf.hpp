#pragma once

#include <steadygrad/core/shape.hpp>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/layer.hpp>
#include <string>

namespace steady {

/// Dynamic erf, Derf                                     [Chen et al. 2025]
///   y = erf(alpha * x + shift) * weight + bias
/// Element by element, without statistics. x, y: [..., *normalized_shape], f32 or f64. alpha: [1].
/// shift: [1], or undefined (0). weight, bias: exactly normalized_shape, or undefined (1 and 0).
/// Same in train and eval. First and second derivatives by x and the parameters; a third is
/// refused. Throws ShapeError when x does not end in normalized_shape or a parameter has another
/// shape.
[[nodiscard]] Tensor dynamic_erf(const Tensor& x, const Shape& normalized_shape,
                                 const Tensor& alpha, const Tensor& shift = {},
                                 const Tensor& weight = {}, const Tensor& bias = {});

/// Dynamic erf with learned alpha and shift, a weight (ones at first) and a bias (zeros). Same in
/// train and eval; freeze() only takes the gradients of the parameters.
class DynamicErf : public Layer {
 public:
  struct Options {
    Shape normalized_shape{};  ///< trailing axes of x that weight and bias have
    double alpha = 0.5;        ///< the first value of alpha
    double shift = 0.0;        ///< the first value of shift
    bool affine = true;        ///< false: neither weight nor bias
    bool bias = true;          ///< false: a weight alone
  };
  /// Throws Error when alpha or shift is not finite, ShapeError for an empty normalized_shape and
  /// an extent below 1.
  explicit DynamicErf(const Options& options);

  /// x: [..., *normalized_shape].
  Tensor forward(const Tensor& x) override;
  /// alpha. saturated: the part of the elements with |erf(alpha * x + shift)| > 0.99.
  /// normalized_mean, _std, _skewness, _kurtosis: moments of erf(...) over all elements.
  void measure(const Tensor& x, const MeasureSink& sink) const override;
  [[nodiscard]] std::string describe() const override;

  const Options o;
  Tensor& alpha;   ///< [1], Role::NormScale
  Tensor& shift;   ///< [1], Role::NormShift
  Tensor& weight;  ///< [*normalized_shape], Role::NormScale; undefined without affine
  Tensor& bias;    ///< [*normalized_shape], Role::NormShift; undefined without affine or bias
};

}  // namespace steady
