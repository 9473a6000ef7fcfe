#pragma once

#include <cstdint>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/residual.hpp>
#include <vector>

#include "examples/claims/measure.hpp"

namespace steady::examples::claims {

/// A classifier of width-sized points: layers h = relu(norm(W h + b)), as residual branches when a
/// placement is given, and a linear head. Weights are normal of deviation gain / sqrt(width).
class MlpNet : public Layer {
 public:
  struct Options {
    std::int64_t width = 64;
    std::int64_t classes = 10;
    std::int64_t layers = 1;
    NormSpec norm = {};          ///< of W h + b
    const char* placement = "";  ///< of the branches; "": no skip connections
    NormSpec placement_norm = NormSpec::parse("layer");
    Gate gate = {};
    double gain = 1.4142135623730951;  ///< He's; 1 is Xavier's for square matrices
    bool norm_is_constant = false;     ///< `norm` in eval mode: it does not look at the data
  };
  explicit MlpNet(const Options& options);

  /// x: [B, width]; logits: [B, classes].
  Tensor forward(const Tensor& x) override { return head_(features(x)); }
  /// What enters the head, and what left each layer when `hidden` is not null.
  Tensor features(const Tensor& x, std::vector<Tensor>* hidden = nullptr);

  const Options o;

 private:
  std::vector<Linear*> maps_;
  std::vector<Layer*> norms_;
  std::vector<Residual> residuals_;
  Layer* final_norm_ = nullptr;
  Linear& head_;
};

/// Losses of each step of training: gradient descent with momentum unless `adagrad`. Ends with the
/// first loss that is not finite.
struct MlpTraining {
  double lr = 0.01;
  double momentum = 0;
  bool adagrad = false;
  std::int64_t batch = 64;
  std::int64_t steps = 150;
};
[[nodiscard]] std::vector<double> train(Layer& net, const Clusters& data,
                                        const MlpTraining& training, std::uint64_t seed);
/// Mean of the last `count` losses; infinity when training ended early.
[[nodiscard]] double last_loss(const std::vector<double>& losses, const MlpTraining& training,
                               std::int64_t count = 15);

}  // namespace steady::examples::claims
