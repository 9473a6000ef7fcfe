#pragma once

#include <steadygrad/core/ops/pool.hpp>
#include <steadygrad/layers/extent2.hpp>
#include <steadygrad/layers/layer.hpp>
#include <string>

namespace steady {

/// Maximum of each window, x: [N, H, W, C]: see max_pool2d. Throws Error for options out of range.
class MaxPool2d : public Layer {
 public:
  struct Options {
    Extent2 kernel = 2;
    Extent2 stride = 0;  ///< 0: the kernel
    Extent2 padding = 0;
    Extent2 dilation = 1;
    bool ceil_mode = false;
  };
  explicit MaxPool2d(Options options);
  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string describe() const override;
  const Options o;
};

/// Mean of each window, x: [N, H, W, C]: see avg_pool2d. Throws Error for options out of range.
class AvgPool2d : public Layer {
 public:
  struct Options {
    Extent2 kernel = 2;
    Extent2 stride = 0;  ///< 0: the kernel
    Extent2 padding = 0;
    bool ceil_mode = false;
    bool count_include_pad = true;
  };
  explicit AvgPool2d(Options options);
  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string describe() const override;
  const Options o;
};

/// Mean over all pixels, [N, H, W, C] -> [N, C].
class GlobalAvgPool2d : public Layer {
 public:
  struct Options {};
  explicit GlobalAvgPool2d(Options options) : o(options) {}
  Tensor forward(const Tensor& x) override { return global_avg_pool2d(x); }
  [[nodiscard]] std::string describe() const override { return "GlobalAvgPool2d"; }
  const Options o;
};

}  // namespace steady
