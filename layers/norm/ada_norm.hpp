#pragma once

#include <steadygrad/core/shape.hpp>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/layer.hpp>
#include <string>

namespace steady {

/// What ada_norm takes besides x and the axes of a row.
struct AdaNormOptions {
  double c = 1.0;      ///< the factor of a value at the mean, finite and not 0
  double k = 0.1;      ///< how much the factor falls per deviation above the mean, >= 0
  double eps = 1e-5;   ///< >= 0, inside the root
  bool detach = true;  ///< the factor is a constant to the derivatives, as in the paper
};

/// AdaNorm: LayerNorm whose gain is a function of the normalized value       [Xu et al. 2019]
///   y = (x - mean) / sqrt(var + eps),   z = c * (1 - k * y) * y
/// mean and var (biased) are of one row: the trailing axes that `normalized_shape` names. x, z:
/// [..., *normalized_shape], f32 or f64. Nothing is learned. With `detach` (the paper's training)
/// the derivatives take the factor c * (1 - k * y) for a constant, so they are not those of z as a
/// function of x; without it they are. Same in train and eval. First and second derivatives; a
/// third is refused. Throws ShapeError when x does not end in normalized_shape, Error for options
/// out of range.
[[nodiscard]] Tensor ada_norm(const Tensor& x, const Shape& normalized_shape,
                              const AdaNormOptions& options = {});

/// AdaNorm as a layer. Same in train and eval.
class AdaNorm : public Layer {
 public:
  struct Options {
    Shape normalized_shape{};  ///< trailing axes of x that are one row
    AdaNormOptions factor{};
  };
  /// Throws Error for options out of range, ShapeError for an empty normalized_shape and an extent
  /// below 1.
  explicit AdaNorm(const Options& options);

  /// x: [..., *normalized_shape].
  Tensor forward(const Tensor& x) override;
  /// normalized_mean, _std, _skewness, _kurtosis: moments of z over all elements.
  void measure(const Tensor& x, const MeasureSink& sink) const override;
  [[nodiscard]] std::string describe() const override;

  const Options o;
};

}  // namespace steady
