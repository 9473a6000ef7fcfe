#pragma once

#include <optional>
#include <steadygrad/layers/conv2d.hpp>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/linear.hpp>
#include <string>

namespace steady {

/// A weight as length times direction: w = g * v / |v|           [Salimans & Kingma 2016, eq. 2]
/// v: any rank >= 1, f32 or f64. The Euclidean norm |v| runs over every axis but `dim`, and g has
/// the shape of v with extent 1 on those axes; without `dim` it runs over all of v, and g is a
/// scalar. w: the shape of v. Differentiable to any order. Throws ShapeError when g has another
/// shape or dtype and for a dim that v lacks; NonFiniteError naming the slice whose norm is 0 or
/// not finite: a zero vector has no direction.
[[nodiscard]] Tensor weight_norm(const Tensor& v, const Tensor& g, std::optional<int> dim = 0);

/// Linear or Conv2d whose weight is length times direction, under PyTorch's names:
///   w = weight_g * weight_v / |weight_v|,  y = inner(x; w, bias)
///
///   add<WeightNorm<Linear>>("fc", {.inner = {.in = 8, .out = 4}});
///
/// The norm is per output unit (dim 0: rows of a Linear, output channels of a Conv2d), per input
/// with dim 1, of the whole weight with nullopt. Initially weight_v is what the inner layer's
/// weight would be, and weight_g its norm, so that w = weight_v. weight_g has Role::NormScale:
/// optimizers leave it out of weight decay unless asked; decay of weight_v changes no output, only
/// its learning rate. The same in every mode. Throws as weight_norm and as the inner layer.
template <class Inner>
class WeightNorm : public Layer {
 public:
  struct Options {
    typename Inner::Options inner = {};
    std::optional<int> dim = 0;  ///< the axis that keeps its extent in weight_g; nullopt: none
  };
  explicit WeightNorm(Options options);

  Tensor forward(const Tensor& x) override;
  /// The weight in use: what a plain inner layer would hold.
  [[nodiscard]] Tensor weight() const { return weight_norm(weight_v, weight_g, o.dim); }
  [[nodiscard]] std::string describe() const override;

  const Options o;
  Tensor& bias;
  Tensor& weight_v;
  Tensor& weight_g;
};

extern template class WeightNorm<Linear>;
extern template class WeightNorm<Conv2d>;

}  // namespace steady
