#pragma once

#include <cstdint>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/layer.hpp>
#include <string>

namespace steady {

/// The constants of local response normalization; defaults as PyTorch's.
struct ResponseOptions {
  std::int64_t size = 5;  ///< channels in the window, >= 1
  double alpha = 1e-4;    ///< >= 0; divided by size
  double beta = 0.75;     ///< >= 0, the exponent
  double k = 1;           ///< > 0
};

/// Local response normalization across channels [Krizhevsky, Sutskever & Hinton 2012, section 3.3]
///   y_c = x_c / (k + alpha / size * sum x_j^2)^beta,   j = c - size/2 .. c + (size - 1)/2
/// (whole divisions), inside 0 .. C-1: the window is cut at the edges and the divisor stays size,
/// PyTorch's convention; the paper has alpha without the division. x, y: [..., C] of rank >= 1, f32
/// or f64. Learns nothing, same in train and eval. Differentiable to any order. Throws Error for
/// options out of range.
[[nodiscard]] Tensor local_response_norm(const Tensor& x, const ResponseOptions& options = {});

/// y_c = sum of x_j, j = c - before .. c + after inside 0 .. C-1, along the last axis. before,
/// after >= 0. Linear: the gradient is the same sum with before and after exchanged.
[[nodiscard]] Tensor channel_window_sum(const Tensor& x, std::int64_t before, std::int64_t after);

/// Local response normalization as a layer, without parameters.
class LocalResponseNorm : public Layer {
 public:
  struct Options {
    std::int64_t features = 0;  ///< extent of x's last axis
    std::int64_t size = 5;      ///< channels in the window, >= 1
    double alpha = 1e-4;        ///< >= 0; divided by size
    double beta = 0.75;         ///< >= 0, the exponent
    double k = 1;               ///< > 0
  };
  /// Throws Error for features < 1 and options out of range.
  explicit LocalResponseNorm(const Options& options);

  /// x: [..., features] of rank >= 2.
  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string describe() const override;

  const Options o;
};

}  // namespace steady
