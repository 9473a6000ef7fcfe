#pragma once

#include <cstdint>
#include <functional>
#include <steadygrad/core/parameter.hpp>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/layer.hpp>
#include <string>

// Weights and states on the unit sphere                                    [Loshchilov et al. 2024]

namespace steady {

/// Which vectors of a weight [out, in] get length 1: those along the model's features.
enum class UnitVectors : std::uint8_t {
  None,     ///< leave this parameter alone
  Rows,     ///< the weights of one output: for maps that read the features
  Columns,  ///< the weights of one input: for maps that write the features
};

/// Says what becomes of a parameter. Not asked about others than weights and embeddings.
using UnitChoice = std::function<UnitVectors(const Parameter& parameter)>;

/// w = w / max(|w|, 1e-12) for the chosen vectors of the chosen weights; once after initialize()
/// and after each optimizer step. Roles Weight and Embedding of two axes are asked about, all rows
/// without a `choice`; a tied parameter is done once. Not recorded. Returns how many parameters it
/// normalized. Throws ShapeError, before it changes any, when one of another rank is chosen.
std::int64_t normalize_weights(Module& model, const UnitChoice& choice = {});

/// Residual update on the unit sphere
///   y = l2(h + alpha * (l2(branch) - h)),   l2(v) = v / max(|v|, 1e-12) over the last axis
///   alpha = |alpha_weight| * init / scale, one for each feature
/// h, branch, y: [..., features]; h has rows of length 1 when it is the output of another such
/// update. alpha_weight starts at `scale`, so alpha starts at `init`: `scale` sets how fast an
/// optimizer of a given step moves it. Same in every mode.
class SphereUpdate : public Layer {
 public:
  struct Options {
    std::int64_t features = 0;
    double init = 0.05;  ///< the first alpha, > 0; the paper's is of the order of 1 / layers
    double scale = 0.0;  ///< the first alpha_weight, > 0; 0: 1 / sqrt(features)
  };
  /// Throws Error for features below 1 and an init or scale out of range.
  explicit SphereUpdate(Options options);

  /// Throws ShapeError unless both are [..., features] of one shape.
  Tensor operator()(const Tensor& h, const Tensor& branch);
  /// Throws Error: it needs the branch.
  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string describe() const override;

  const Options o;
  Tensor& alpha_weight;  ///< [features], Role::NormScale
};

}  // namespace steady
