#pragma once

#include <cstdint>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/layer.hpp>
#include <string>

namespace steady {

/// Filter response normalization                             [Singh & Krishnan 2020, eq. 1 to 4]
///   y = x / sqrt(nu2 + |eps|) * weight + bias,   and with tau  max(y, tau) (thresholded linear
///   unit)
/// nu2 is the mean of x^2 of one channel of one sample over all positions: nothing is subtracted.
/// x, y: [N, ..., C] of rank >= 2, f32 or f64. weight, bias, tau: exactly [C], or undefined (1, 0,
/// no threshold). eps: [1], which may be learned. No samples or positions at all are legal. Where
/// y = tau the gradient is shared equally. Differentiable to any order by every tensor; same in
/// train and eval. Throws ShapeError when a parameter has another shape.
[[nodiscard]] Tensor filter_response_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                          const Tensor& tau, const Tensor& eps);
/// The same with a constant eps, finite and >= 0.
[[nodiscard]] Tensor filter_response_norm(const Tensor& x, const Tensor& weight = {},
                                          const Tensor& bias = {}, const Tensor& tau = {},
                                          double eps = 1e-6);

/// Filter response normalization with learned weight (ones at first), bias and threshold tau (both
/// zeros). It is norm and activation in one: with tlu no relu follows it. Same in train and eval.
///
/// learn_eps is for layers whose output has one position or few, where x / sqrt(x^2) would be the
/// sign of x: the paper learns eps there, from 1e-4.
class FilterResponseNorm : public Layer {
 public:
  struct Options {
    std::int64_t features = 0;  ///< extent of x's last axis
    double eps = 1e-6;          ///< >= 0, inside the root; what is learned starts there
    bool learn_eps = false;     ///< true: eps is a parameter, of which the absolute value counts
    bool tlu = true;            ///< false: no threshold
  };
  /// Throws Error for features < 1 and a bad eps.
  explicit FilterResponseNorm(const Options& options);

  /// x: [N, ..., features] of rank >= 2.
  Tensor forward(const Tensor& x) override;
  /// normalized_mean, _std, _skewness, _kurtosis: moments of x / sqrt(nu2 + |eps|).
  void measure(const Tensor& x, const MeasureSink& sink) const override;
  [[nodiscard]] std::string describe() const override;

  const Options o;
  Tensor& weight;  ///< [features], Role::NormScale
  Tensor& bias;    ///< [features], Role::NormShift
  Tensor& tau;     ///< [features], Role::NormShift; undefined without tlu
  Tensor& eps;     ///< [1], Role::NormShift; undefined without learn_eps
};

}  // namespace steady
