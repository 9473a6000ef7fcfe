#include <fmt/core.h>

#include <array>
#include <cmath>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/layers/norm/layer_norm.hpp>

#include "examples/claims/encoder.hpp"
#include "examples/claims/experiments.hpp"
#include "examples/claims/measure.hpp"

namespace steady::examples::claims {
namespace {

constexpr std::array<std::int64_t, 5> Depths{3, 6, 12, 24, 48};
constexpr int Draws = 16;
constexpr double Relative = 0.01;

/// Mean squared change of the normalised output when every weight matrix gets noise of a hundredth
/// of its own size.
double output_change(const Placement& placement, std::int64_t layers, std::uint64_t seed) {
  Encoder net({.layers = layers, .placement = placement, .final_norm = false});
  net.initialize(seed);
  const Tensor x = normal_tensor({4, 8, net.o.dim}, seed, "x");
  const auto output = [&] { return layer_norm(net(x), {net.o.dim}, {}, {}, 0.0); };
  const Tensor before = output();
  for (Parameter& p : net.parameters()) {
    if (p.role != Role::Weight) continue;
    const double size = std::sqrt(second_moment(p.value));
    const Tensor noise =
        normal_tensor(p.value.shape(), seed, "noise/" + p.name, {.stddev = Relative * size});
    p.value.copy_from(p.value + noise);
  }
  return second_moment(output() - before);
}

/// Geometric mean over the draws at each depth: arithmetic ones are of a few draws alone.
std::vector<double> changes(const char* placement, std::uint64_t seed) {
  std::vector<double> means;
  for (const std::int64_t layers : Depths) {
    std::vector<double> drawn;
    for (int draw = 0; draw < Draws; ++draw) {
      drawn.push_back(output_change(Placement::parse(placement), layers, draw_seed(seed, draw)));
    }
    means.push_back(geometric_mean(drawn));
  }
  return means;
}

}  // namespace

void amplification(Findings& findings, std::uint64_t seed) {
  const std::vector<double> depth(Depths.begin(), Depths.end());
  const std::vector<double> post = changes("post", seed);
  const std::vector<double> pre = changes("pre", seed);
  const std::vector<double> deepnorm = changes("deepnorm", seed);
  const double post_slope = log_log_slope(depth, post);
  const double pre_slope = log_log_slope(depth, pre);
  const double deepnorm_slope = log_log_slope(depth, deepnorm);
  const auto growth = [](const std::vector<double>& d) { return d.back() / d.front(); };

  const Band linear{0.70, 1.40};
  const Band slow = below(0.60);
  const Band shrinking{-0.65, -0.35};
  findings.check("slope over L, post-LN", 1, post_slope, linear);
  findings.check("slope over L, pre-LN", std::nullopt, pre_slope, slow);
  findings.check("slope over L, DeepNorm", -0.5, deepnorm_slope, shrinking);
  findings.check("growth 3 to 48, post / pre", std::nullopt, growth(post) / growth(pre), above(2));
  findings.control("slope over L, pre-LN", pre_slope, linear);
  findings.control("slope over L, post-LN", post_slope, slow);
  findings.control("slope over L, pre-LN", pre_slope, shrinking);
  findings.control("growth 3 to 48, DeepNorm / pre", growth(deepnorm) / growth(pre), above(2));
}

}  // namespace steady::examples::claims
