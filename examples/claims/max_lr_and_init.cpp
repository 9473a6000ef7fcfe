#include <cmath>
#include <initializer_list>

#include "examples/claims/experiments.hpp"
#include "examples/claims/mlp_net.hpp"

namespace steady::examples::claims {
namespace {

constexpr std::int64_t Deep = 30;

MlpNet::Options residual_net(const char* norm, bool constant = false) {
  return {.layers = 8,
          .norm = NormSpec::parse(norm),
          .placement = "none",
          .norm_is_constant = constant};
}

/// The largest rate 10^(k/2) at which training ends below a loss of 1.
double largest_rate(const MlpNet::Options& options, const Clusters& data, std::uint64_t seed) {
  for (int k = 2; k >= -8; --k) {
    MlpNet net(options);
    net.initialize(seed);
    const MlpTraining training{.lr = std::pow(10.0, k / 2.0)};
    if (last_loss(train(net, data, training, seed), training) < 1.0) return training.lr;
  }
  return std::nan("");
}

/// Second moment of the last layer's output at the initial weights.
double activation(const MlpNet::Options& options, const Clusters& data, std::uint64_t seed) {
  MlpNet net(options);
  net.initialize(seed);
  std::vector<Tensor> hidden;
  (void)net.features(draw_batch(data, 64, seed, 0).x, &hidden);
  return second_moment(hidden.back());
}

/// The best loss of a plain net of 30 layers over four rates.
double best_loss(double gain, const char* norm, const Clusters& data, std::uint64_t seed) {
  double best = 1e300;
  for (const double lr : {1e-3, 3e-3, 1e-2, 3e-2}) {
    MlpNet net({.layers = Deep, .norm = NormSpec::parse(norm), .gain = gain});
    net.initialize(seed);
    const MlpTraining training{.lr = lr, .momentum = 0.9};
    best = std::fmin(best, last_loss(train(net, data, training, seed), training));
  }
  return best;
}

/// The factor of the second moment per layer of a wide plain net at its initial weights, the
/// geometric mean of four draws.
double layer_factor(double gain, std::uint64_t seed) {
  constexpr std::int64_t Width = 256;
  std::vector<double> factors;
  for (int draw = 0; draw < 4; ++draw) {
    const std::uint64_t s = draw_seed(seed, draw);
    MlpNet net({.width = Width, .layers = Deep, .gain = gain});
    net.initialize(s);
    std::vector<Tensor> hidden;
    (void)net.features(normal_tensor({64, Width}, s, "x"), &hidden);
    const double growth = second_moment(hidden.back()) / second_moment(hidden.front());
    factors.push_back(std::pow(growth, 1 / double(Deep - 1)));
  }
  return geometric_mean(factors);
}

}  // namespace

void max_lr_and_init(Findings& findings, std::uint64_t seed) {
  const double he = std::sqrt(2.0);
  const double xavier = 1;
  const Clusters data = make_clusters({.features = 64}, seed);

  const Band far_larger = above(9.9);
  const double plain_rate = largest_rate(residual_net("none"), data, seed);
  const double batch_rate = largest_rate(residual_net("batch"), data, seed);
  const double constant_rate = largest_rate(residual_net("batch", true), data, seed);
  const double plain_size = activation(residual_net("none"), data, seed);
  const double batch_size = activation(residual_net("batch"), data, seed);
  findings.check("largest rate, BN / no norm", std::nullopt, batch_rate / plain_rate, far_larger);
  findings.check("size of block 8, no norm / BN", std::nullopt, plain_size / batch_size,
                 far_larger);

  const Band half{0.47, 0.53};
  const double stalls = best_loss(xavier, "none", data, seed);
  const double he_loss = best_loss(he, "none", data, seed);
  const double batch_loss = best_loss(xavier, "batch", data, seed);
  findings.check("30 layers, Xavier, factor per layer", 0.5, layer_factor(xavier, seed), half);
  findings.check("Xavier, best loss", std::log(10.0), stalls, above(2.25));
  findings.check("He, best loss", std::nullopt, he_loss, below(2.0));
  findings.check("Xavier with BN, best loss", std::nullopt, batch_loss, below(1.0));

  findings.control("BN of constants / no norm", constant_rate / plain_rate, far_larger);
  findings.control("BN of constants, size",
                   plain_size / activation(residual_net("batch", true), data, seed), far_larger);
  findings.control("He, factor per layer", layer_factor(he, seed), half);
  findings.control("He, best loss", he_loss, above(2.25));
  findings.control("Xavier, best loss", stalls, below(2.0));
}

}  // namespace steady::examples::claims
