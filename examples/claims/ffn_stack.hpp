#pragma once

#include <cstdint>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/residual.hpp>
#include <string>
#include <vector>

namespace steady::examples::claims {

/// A residual stream through feed-forward branches alone, for exact laws: without attention nothing
/// mixes the tokens. Branch: down(relu(up(h))), or down(relu(up(relu(h)))) when `preactivated`.
/// Weights are [features, features], normal of deviation gain / sqrt(features); no biases.
class FfnStack : public Module {
 public:
  struct Options {
    std::int64_t features = 128;
    std::int64_t layers = 1;
    Placement placement = {};
    NormSpec norm = NormSpec::parse("layer(eps=0, affine=false)");
    Gate gate = {};
    bool preactivated = false;
    double gain = 1;
    bool final_norm = false;  ///< where the placement has one
  };
  explicit FfnStack(const Options& options);

  /// What one pass saw.
  struct Pass {
    std::vector<Tensor> stream;  ///< before the first layer, then after each
    std::vector<Tensor> hidden;  ///< of each layer: what enters `down`
    std::vector<Tensor> branch;  ///< and what leaves it
    Tensor y;                    ///< after the final norm
  };
  /// x: [..., features].
  [[nodiscard]] Pass operator()(const Tensor& x) const;

  const Options o;

 private:
  std::vector<Linear*> up_;
  std::vector<Linear*> down_;
  std::vector<Residual> residual_;
  Layer* final_norm_ = nullptr;
};

}  // namespace steady::examples::claims
