#pragma once

#include <steadygrad/core/shape.hpp>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/norm/sum_and_norm.hpp>
#include <string>

namespace steady {

/// Layer normalization                                  [Ba, Kiros & Hinton 2016, eq. 4]
///   y = (x - mean) / sqrt(var + eps) * weight + bias
/// mean and var (biased: divided by the number of elements) are of one row: the trailing axes that
/// `normalized_shape` names. x, y: [..., *normalized_shape], f32 or f64. weight, bias: exactly
/// normalized_shape, or undefined (1 and 0). eps >= 0 stands inside the root.
/// Same in train and eval. First and second derivatives by x, weight and bias; a third is refused.
/// Throws ShapeError when x does not end in normalized_shape or a parameter has another shape.
[[nodiscard]] Tensor layer_norm(const Tensor& x, const Shape& normalized_shape,
                                const Tensor& weight = {}, const Tensor& bias = {},
                                double eps = 1e-5);

/// Layer normalization of whole samples with a gain per channel   [Wu & He 2018, one group]
/// The same equation; mean and var are of all elements of one sample. x, y: [N, ..., C] of rank
/// >= 2, images [N, H, W, C]. weight, bias: exactly [C], or undefined.
[[nodiscard]] Tensor layer_norm_over_sample(const Tensor& x, const Tensor& weight = {},
                                            const Tensor& bias = {}, double eps = 1e-5);

/// x = left + right and the layer norm of x, in one pass: what a residual stream needs. left,
/// right: of one shape and dtype. The bits, and those of the gradients, are those of an addition
/// and a layer_norm; where x is read again, its gradient joins the norm's in the same pass.
[[nodiscard]] SumAndNorm add_layer_norm(const Tensor& left, const Tensor& right,
                                        const Shape& normalized_shape, const Tensor& weight = {},
                                        const Tensor& bias = {}, double eps = 1e-5);

/// Layer normalization with learned weight (ones at first) and bias (zeros).
/// Same in train and eval; freeze() only takes the gradients of the parameters.
class LayerNorm : public Layer {
 public:
  struct Options {
    Shape normalized_shape{};  ///< trailing axes of x that are one row; with over_sample [channels]
    double eps = 1e-5;         ///< >= 0, inside the root
    bool affine = true;        ///< false: neither weight nor bias
    bool bias = true;          ///< false: a weight alone
    bool over_sample = false;  ///< layer_norm_over_sample: one row per sample, a gain per channel
  };
  /// Throws Error when eps is not finite or negative, ShapeError for an empty normalized_shape, an
  /// extent below 1, and over_sample with more than one axis.
  explicit LayerNorm(const Options& options);

  /// x: [..., *normalized_shape]; with over_sample [N, ..., channels].
  Tensor forward(const Tensor& x) override;
  /// x + added and the norm of it, in one pass; not with over_sample. Unlike a call it shows its
  /// observers nothing of use: see observed().
  [[nodiscard]] SumAndNorm of_sum(const Tensor& x, const Tensor& added);
  /// rstd_min, rstd_max: range of 1 / sqrt(var + eps) over the rows.
  /// normalized_mean, _std, _skewness, _kurtosis (3 for a normal distribution): moments of
  /// (x - mean) * rstd over all elements.
  void measure(const Tensor& x, const MeasureSink& sink) const override;
  [[nodiscard]] std::string describe() const override;

  const Options o;
  Tensor& weight;  ///< [*normalized_shape], Role::NormScale; undefined without affine
  Tensor& bias;    ///< [*normalized_shape], Role::NormShift; undefined without affine or bias
};

}  // namespace steady
