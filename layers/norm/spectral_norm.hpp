#pragma once

#include <cstdint>
#include <steadygrad/layers/conv2d.hpp>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/linear.hpp>
#include <string>
#include <utility>

namespace steady {

/// A weight divided by its largest singular value as two vectors see it:
///   sigma = u^T W v,  w = weight / sigma                          [Miyato et al. 2018, eq. 8]
/// weight: [out, ...], f32 or f64; W is weight as a matrix [out, rest]; u: [out], v: [rest], which
/// are constants to the derivatives by definition (W reaches sigma through the product alone).
/// Differentiable to any order by the weight. Throws ShapeError when shapes or dtypes do not fit,
/// NonFiniteError for sigma = 0.
[[nodiscard]] Tensor spectral_norm(const Tensor& weight, const Tensor& u, const Tensor& v);

/// `iterations` steps of v = W^T u / max(|W^T u|, eps), u = W v / max(|W v|, eps), from u: new
/// tensors, constants to every tape. u and v meet the first singular vectors as the ratio of the
/// first two singular values, to the power of twice the steps taken so far.
[[nodiscard]] std::pair<Tensor, Tensor> power_iteration(const Tensor& weight, const Tensor& u,
                                                        const Tensor& v, int iterations,
                                                        double eps = 1e-12);

/// Linear or Conv2d whose weight has its largest singular value near 1, under PyTorch's names:
///   w = weight_orig / (weight_u^T W weight_v),  y = inner(x; w, bias)
///
///   add<SpectralNorm<Conv2d>>("conv", {.inner = {.in = 3, .out = 8}});
///
/// Train: iterations of the buffers weight_u and weight_v, then the product with the new ones. Eval
/// and frozen: the product with the buffers as they are. While a NoStateUpdate is alive no mode
/// iterates, so that a gradient check sees one function; the value is then that of the buffers.
/// initialize() draws them at random and takes 15 iterations: sigma is near the truth from the
/// start. For a Conv2d, sigma is that of the kernel as a matrix, not of the convolution.
/// Throws NonFiniteError, buffers unchanged, when an iteration is not finite, and for sigma = 0.
template <class Inner>
class SpectralNorm : public Layer {
 public:
  struct Options {
    typename Inner::Options inner = {};
    int iterations = 1;  ///< per training forward, >= 1
    double eps = 1e-12;  ///< least norm that is divided by, > 0
  };
  explicit SpectralNorm(Options options);

  Tensor forward(const Tensor& x) override;
  /// The weight for the buffers as they are: what a plain inner layer would hold.
  [[nodiscard]] Tensor weight() const;
  /// sigma: the norm that the weight is divided by.
  void measure(const Tensor& x, const MeasureSink& sink) const override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::string statistics() const override;

  const Options o;
  Tensor& bias;
  Tensor& weight_orig;
  Tensor& weight_u;  ///< [out], of length 1
  Tensor& weight_v;  ///< [in] or [in / groups * kernel elements], of length 1

 protected:
  void on_initialize(std::uint64_t seed) override;

 private:
  void iterate(int iterations);
};

extern template class SpectralNorm<Linear>;
extern template class SpectralNorm<Conv2d>;

}  // namespace steady
