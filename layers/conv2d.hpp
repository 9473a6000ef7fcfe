#pragma once

#include <cstdint>
#include <steadygrad/layers/extent2.hpp>
#include <steadygrad/layers/layer.hpp>
#include <string>

namespace steady {

/// Two-dimensional convolution (cross-correlation), features last: x: [N, H, W, in] -> y:
/// [N, Ho, Wo, out], Ho = floor((H + 2 padding - dilation (kernel - 1) - 1) / stride) + 1.
/// weight: [out, in / groups, kernel, kernel] (PyTorch's order); bias: [out].
/// Initially, as PyTorch: weight and bias uniform on +-1/sqrt(in / groups * kernel elements).
/// The same in every mode. Throws Error for options out of range, ShapeError for x that does not
/// fit.
class Conv2d : public Layer {
 public:
  struct Options {
    std::int64_t in = 0;
    std::int64_t out = 0;
    Extent2 kernel = 3;
    Extent2 stride = 1;
    Extent2 padding = 0;   ///< zeros added on both sides
    Extent2 dilation = 1;  ///< distance between kernel elements
    std::int64_t groups = 1;
    bool bias = true;
    Init weight_init = {};  ///< empty: the default above
    Init bias_init = {};    ///< empty: the default above
  };
  explicit Conv2d(Options options);

  Tensor forward(const Tensor& x) override { return apply(o, x, weight, bias); }
  [[nodiscard]] std::string describe() const override { return describe(o); }

  // --- for layers that make the weight themselves ---
  /// The options with every default in its place; throws as the constructor.
  [[nodiscard]] static Options complete(Options options);
  [[nodiscard]] static Shape weight_shape(const Options& o);
  /// What forward gives with these parameters.
  [[nodiscard]] static Tensor apply(const Options& o, const Tensor& x, const Tensor& weight,
                                    const Tensor& bias);
  [[nodiscard]] static std::string describe(const Options& o);

  const Options o;
  Tensor& weight;
  Tensor& bias;
};

}  // namespace steady
