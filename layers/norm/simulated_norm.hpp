#pragma once

#include <memory>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/layers/norm/layer_norm.hpp>
#include <steadygrad/layers/norm/rms_norm.hpp>
#include <steadygrad/layers/norm/simulated_precision.hpp>

namespace steady {

/// A norm that computes what low-precision code would, with the parameters, state names and options
/// of the exact norm N: LayerNorm, RmsNorm or BatchNorm.
///
/// Forward: values of simulate_norm on x rounded to the format; they are numbers of the format in a
/// tensor of x's dtype. Parameters stay as they are and are rounded where they are used. Backward:
/// straight-through, the derivatives of the exact norm at the rounded input, in the dtype of x;
/// roundings pass gradients on unchanged. So it is not the derivative of what forward computes,
/// which is zero or undefined everywhere. BatchNorm's running statistics are updated exactly, from
/// the rounded input.
template <class N>
class SimulatedNorm final : public Layer {
 public:
  struct Options {
    typename N::Options norm{};
    SimulatedPrecision precision{};
  };
  /// Throws what N does.
  explicit SimulatedNorm(const Options& options);

  Tensor forward(const Tensor& x) override;
  void measure(const Tensor& x, const MeasureSink& sink) const override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::string statistics() const override { return exact().statistics(); }

  const Options o;

 private:
  /// The exact norm with the parameters, buffers and mode of this one.
  [[nodiscard]] N& exact() const;

  std::unique_ptr<N> exact_;
  std::vector<Tensor*> mine_;
};

extern template class SimulatedNorm<LayerNorm>;
extern template class SimulatedNorm<RmsNorm>;
extern template class SimulatedNorm<BatchNorm>;

namespace detail {

/// N, or its simulation where `options` ask for one.
template <class N>
[[nodiscard]] std::unique_ptr<Layer> make_norm_in_precision(const NormOptions& options,
                                                            const typename N::Options& norm) {
  const auto precision = simulated_precision(options);
  if (!precision) return std::make_unique<N>(norm);
  return std::make_unique<SimulatedNorm<N>>(
      typename SimulatedNorm<N>::Options{.norm = norm, .precision = *precision});
}

}  // namespace detail
}  // namespace steady
