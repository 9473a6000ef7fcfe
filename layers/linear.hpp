#pragma once

#include <cstdint>
#include <steadygrad/layers/layer.hpp>
#include <string>

namespace steady {

/// y = x W^T + b over the last axis. x: [..., in]; y: [..., out]; weight: [out, in]; bias: [out].
/// Initially, as PyTorch: weight and bias uniform on +-1/sqrt(in). The same in every mode.
/// Throws Error for in or out below 1, ShapeError when the last axis of x is not `in`.
class Linear : public Layer {
 public:
  struct Options {
    std::int64_t in = 0;
    std::int64_t out = 0;
    bool bias = true;
    Init weight_init = {};  ///< empty: the default above
    Init bias_init = {};    ///< empty: the default above
  };
  explicit Linear(Options options);

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
