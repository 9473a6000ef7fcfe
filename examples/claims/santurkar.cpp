#include <algorithm>
#include <array>
#include <steadygrad/core/curvature.hpp>
#include <steadygrad/core/ops/loss.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/optim/sgd.hpp>

#include "examples/claims/experiments.hpp"
#include "examples/claims/mlp_net.hpp"

namespace steady::examples::claims {
namespace {

/// Median over the training of max |g' - g| / |g| over steps of 0.1 / 4 .. 0.4 along the gradient.
double gradient_change(const char* norm, bool constant, std::uint64_t seed) {
  constexpr std::int64_t Batch = 128;
  constexpr std::array Rates{0.025, 0.05, 0.1, 0.2, 0.4};
  const Clusters data = make_clusters({.features = 64}, seed);
  MlpNet net({.layers = 10, .norm = NormSpec::parse(norm), .norm_is_constant = constant});
  net.initialize(seed);
  std::vector<Tensor> leaves;
  for (const Parameter& p : net.parameters()) leaves.push_back(p.value);
  Sgd optimizer(net.parameters(), {.lr = 0.01});
  std::vector<double> changes;
  for (std::int64_t step = 0; step < 150; ++step) {
    const Clusters batch = draw_batch(data, Batch, seed, step);
    const auto loss = [&] { return cross_entropy(net(batch.x), batch.y); };
    if (step % 10 == 0) {
      double largest = 0;
      for (const AlongGradient& point : along_gradient(loss, leaves, Rates)) {
        largest = std::max(largest, point.gradient_change);
      }
      changes.push_back(largest);
    }
    Tape tape;
    optimizer.step(tape.backward(loss()));
  }
  std::ranges::nth_element(changes, changes.begin() + std::ptrdiff_t(changes.size() / 2));
  return changes[changes.size() / 2];
}

}  // namespace

void santurkar(Findings& findings, std::uint64_t seed) {
  constexpr int Draws = 2;
  std::vector<double> plain;
  std::vector<double> batch;
  std::vector<double> constant;
  for (int draw = 0; draw < Draws; ++draw) {
    const std::uint64_t s = draw_seed(seed, draw);
    plain.push_back(gradient_change("none", false, s));
    batch.push_back(gradient_change("batch", false, s));
    constant.push_back(gradient_change("batch", true, s));
  }
  const double without = geometric_mean(plain);
  const Band smoother = above(3);
  const Band predictive = below(3);
  findings.check("change of the gradient, none / BN", std::nullopt, without / geometric_mean(batch),
                 smoother);
  findings.check("change of the gradient, BN", std::nullopt, geometric_mean(batch), predictive);
  findings.control("none / BN of constants", without / geometric_mean(constant), smoother);
  findings.control("change of the gradient, none", without, predictive);
}

}  // namespace steady::examples::claims
