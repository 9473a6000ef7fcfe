#include "examples/claims/mlp_net.hpp"

#include <fmt/core.h>

#include <cmath>
#include <limits>
#include <memory>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/loss.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/optim/adagrad.hpp>
#include <steadygrad/optim/sgd.hpp>
#include <string_view>

namespace steady::examples::claims {

MlpNet::MlpNet(const Options& options)
    : o(options),
      head_(add<Linear>("head", {.in = o.width,
                                 .out = o.classes,
                                 .weight_init = kaiming_normal_init(1),
                                 .bias_init = constant_init(0)})) {
  const std::string_view placement = o.placement;
  for (std::int64_t l = 1; l <= o.layers; ++l) {
    maps_.push_back(
        &add<Linear>(fmt::format("map{}", l), {.in = o.width,
                                               .out = o.width,
                                               .weight_init = kaiming_normal_init(o.gain),
                                               .bias_init = constant_init(0)}));
    norms_.push_back(&add_norm(fmt::format("norm{}", l), o.norm, o.width));
    if (o.norm_is_constant) norms_.back()->eval();
    if (placement.empty()) continue;
    residuals_.emplace_back(
        *this, Residual::Options{.placement = Placement::parse(placement),
                                 .norm = o.placement_norm,
                                 .gate = o.gate,
                                 .features = o.width,
                                 .site = {.layer = l, .layers = o.layers, .branches = 1},
                                 .before_name = fmt::format("before{}", l),
                                 .after_name = fmt::format("after{}", l),
                                 .gate_name = fmt::format("gate{}", l)});
  }
  if (!placement.empty() && Placement::parse(placement).final_norm()) {
    final_norm_ = &add_norm("final_norm", o.placement_norm, o.width);
  }
}

Tensor MlpNet::features(const Tensor& x, std::vector<Tensor>* hidden) {
  ResidualStream s{x};
  for (std::size_t l = 0; l < maps_.size(); ++l) {
    const auto branch = [&](const Tensor& h) { return relu((*norms_[l])((*maps_[l])(h))); };
    s = residuals_.empty() ? ResidualStream{branch(s.x)} : residuals_[l](s, branch);
    if (hidden != nullptr) hidden->push_back(s.x);
  }
  return final_norm_ == nullptr ? s.x : (*final_norm_)(s.x);
}

std::vector<double> train(Layer& net, const Clusters& data, const MlpTraining& training,
                          std::uint64_t seed) {
  std::unique_ptr<Optimizer> optimizer;
  if (training.adagrad) {
    optimizer = std::make_unique<Adagrad>(net.parameters(), AdagradOptions{.lr = training.lr});
  } else {
    optimizer = std::make_unique<Sgd>(net.parameters(),
                                      SgdOptions{.lr = training.lr, .momentum = training.momentum});
  }
  std::vector<double> losses;
  for (std::int64_t step = 0; step < training.steps; ++step) {
    const Clusters batch = draw_batch(data, training.batch, seed, step);
    Tape tape;
    try {
      const Tensor loss = cross_entropy(net(batch.x), batch.y);
      losses.push_back(loss.item());
      if (!std::isfinite(losses.back())) break;
      optimizer->step(tape.backward(loss));
    } catch (const NonFiniteError&) {
      // A BatchNorm refuses a batch that would spoil its running statistics.
      losses.push_back(std::numeric_limits<double>::quiet_NaN());
      break;
    }
  }
  return losses;
}

double last_loss(const std::vector<double>& losses, const MlpTraining& training,
                 std::int64_t count) {
  if (static_cast<std::int64_t>(losses.size()) < training.steps || !std::isfinite(losses.back())) {
    return std::numeric_limits<double>::infinity();
  }
  return average(std::span(losses).last(static_cast<std::size_t>(count)));
}

}  // namespace steady::examples::claims
