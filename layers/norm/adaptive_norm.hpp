#pragma once

#include <cstdint>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <string>

namespace steady {

/// A norm whose scale and shift are made from a condition                 [Peebles & Xie 2023]
///   y = norm(x) * (1 + scale(c)) + shift(c),   [shift, scale](c) = c W^T + b
/// Adaptive LayerNorm or RMSNorm, by `norm`. x, y: [B, ..., features]. condition: [B, condition],
/// one for all positions of a sample, or [B, ..., condition], one for each. W and b are zero at
/// first (adaLN-Zero), so that a new layer is its norm. Whatever the condition passes through
/// before, such as a SiLU, is the caller's. The mode matters only where it does to `norm`. Throws
/// ShapeError where x or the condition does not fit.
class AdaptiveNorm : public Layer {
 public:
  struct Options {
    std::int64_t features = 0;
    std::int64_t condition = 0;  ///< extent of the condition's last axis
    NormSpec norm = NormSpec::parse("layer(eps=1e-6, affine=false)");  ///< as child "norm"
  };
  /// Throws Error for an extent below 1.
  explicit AdaptiveNorm(Options options);

  Tensor operator()(const Tensor& x, const Tensor& condition);
  /// Throws Error: it needs a condition.
  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string describe() const override;

  const Options o;
  Layer& norm;
  Linear& linear;  ///< [2 * features, condition]: the rows of shift, then those of scale
};

}  // namespace steady
