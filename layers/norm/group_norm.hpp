#pragma once

#include <cstdint>
#include <span>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/norm/column_stats.hpp>
#include <string>

namespace steady {

/// Group normalization                                              [Wu & He 2018, eq. 1 and 7]
///   y = (x - mean) / sqrt(var + eps) * weight + bias
/// mean and var (biased: divided by the number of elements) are of one group of one sample: C /
/// groups neighbouring channels at all positions. x, y: [N, ..., C] of rank >= 2, images
/// [N, H, W, C], f32 or f64. weight, bias: exactly [C], or undefined (1 and 0). eps >= 0 stands
/// inside the root. Same in train and eval, and a sample's result depends on no other sample. No
/// samples or positions at all are legal: y is empty, the gradients of weight and bias are zero.
/// First and second derivatives by x, weight and bias; a third is refused. Throws ShapeError when
/// groups does not divide C, for groups of one value (their variance says nothing), and when a
/// parameter has another shape.
[[nodiscard]] Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight = {},
                                const Tensor& bias = {}, double eps = 1e-5);

/// Group normalization with learned weight (ones at first) and bias (zeros).
/// Same in train and eval; freeze() only takes the gradients of the parameters.
class GroupNorm : public Layer {
 public:
  struct Options {
    std::int64_t features = 0;  ///< extent of x's last axis
    std::int64_t groups = 32;   ///< divides features
    double eps = 1e-5;          ///< >= 0, inside the root
    bool affine = true;         ///< false: neither weight nor bias
    bool bias = true;           ///< false: a weight alone
  };
  /// Throws Error for features < 1, a bad eps, and groups < 1 or that do not divide features.
  explicit GroupNorm(const Options& options);

  /// x: [N, ..., features] of rank >= 2.
  Tensor forward(const Tensor& x) override;
  /// rstd_min, rstd_max: range of 1 / sqrt(var + eps) over samples and groups.
  /// normalized_mean, _std, _skewness, _kurtosis (3 for a normal distribution): moments of
  /// (x - mean) * rstd over all elements.
  void measure(const Tensor& x, const MeasureSink& sink) const override;
  [[nodiscard]] std::string describe() const override;

  const Options o;
  Tensor& weight;  ///< [features], Role::NormScale; undefined without affine
  Tensor& bias;    ///< [features], Role::NormShift; undefined without affine or bias
};

namespace detail {

/// group_norm under the name `op`; moments ([N * groups], or empty) receives those of the groups.
[[nodiscard]] Tensor group_norm(const char* op, const Tensor& x, std::int64_t groups,
                                const Tensor& weight, const Tensor& bias, double eps,
                                std::span<Moments> moments);
/// What GroupNorm::measure says, for any number of groups.
void measure_groups(const Tensor& x, std::int64_t groups, double eps, const MeasureSink& sink);

}  // namespace detail
}  // namespace steady
