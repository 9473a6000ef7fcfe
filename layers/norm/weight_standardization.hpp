#pragma once

#include <steadygrad/layers/conv2d.hpp>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/linear.hpp>
#include <string>

namespace steady {

/// A weight whose outputs have mean 0 and variance 1 over their inputs: for every output unit k
///   w[k, i] = (weight[k, i] - mean_k) / sqrt(var_k + eps)        [Qiao et al. 2019, eq. 7 and 8]
/// mean_k and var_k (biased) over all i: the inputs, for a convolution also the kernel's elements.
/// weight: [out, ...] of two axes or more, f32 or f64. eps >= 0 stands inside the root. First and
/// second derivatives; a third is refused. Throws ShapeError for other shapes.
[[nodiscard]] Tensor weight_standardization(const Tensor& weight, double eps = 1e-10);

/// Linear or Conv2d with a standardized weight, under the plain layer's names (weight, bias):
///   y = inner(x; weight_standardization(weight), bias)
///
///   add<WeightStandardization<Conv2d>>("conv", {.inner = {.in = 3, .out = 8}});
///
/// The same in every mode. Initially the weight is what the inner layer's would be. A unit has
/// outputs of fan_in times the variance of its inputs: a norm follows. Throws Error for a bad eps
/// and as the inner layer.
template <class Inner>
class WeightStandardization : public Layer {
 public:
  struct Options {
    typename Inner::Options inner = {};
    double eps = 1e-10;  ///< far below the variance of usual weights, 1 / fan_in
  };
  explicit WeightStandardization(Options options);

  Tensor forward(const Tensor& x) override;
  /// The weight in use: what a plain inner layer would hold.
  [[nodiscard]] Tensor standardized() const { return weight_standardization(weight, o.eps); }
  [[nodiscard]] std::string describe() const override;

  const Options o;
  Tensor& weight;
  Tensor& bias;
};

extern template class WeightStandardization<Linear>;
extern template class WeightStandardization<Conv2d>;

}  // namespace steady
