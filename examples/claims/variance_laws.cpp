#include <fmt/core.h>

#include <cmath>

#include "examples/claims/encoder.hpp"
#include "examples/claims/experiments.hpp"
#include "examples/claims/ffn_stack.hpp"
#include "examples/claims/measure.hpp"

namespace steady::examples::claims {
namespace {

constexpr int Draws = 8;
constexpr std::int64_t Layers = 48;
constexpr std::int64_t Shallow = 16;

/// Weights of such a stack, drawn once for all placements.
std::vector<State> draw_weights(const FfnStack::Options& options, std::uint64_t seed) {
  std::vector<State> weights;
  for (int draw = 0; draw < Draws; ++draw) {
    FfnStack stack(options);
    stack.initialize(draw_seed(seed, draw));
    weights.push_back(stack.state());
  }
  return weights;
}

/// Second moment of the stream after the last layer relative to that of the input: the mean over
/// the draws, of logarithms where it grows geometrically.
double growth(const FfnStack::Options& options, std::span<const State> weights, std::uint64_t seed,
              bool geometric = false) {
  std::vector<double> last;
  for (int draw = 0; draw < Draws; ++draw) {
    FfnStack stack(options);
    (void)stack.load(weights[std::size_t(draw)], {.strict = false});
    const Tensor x = normal_tensor({64, options.features}, draw_seed(seed, draw), "x");
    last.push_back(second_moment(stack(x).stream.back()) / second_moment(x));
  }
  return geometric ? geometric_mean(last) : average(last);
}

FfnStack::Options placed(const char* placement, std::int64_t layers = Layers) {
  return {.layers = layers, .placement = Placement::parse(placement)};
}

/// Two-layer pre-activation branches with He's weights: each has the second moment of what enters.
FfnStack::Options residual_net(const char* norm) {
  return {.layers = Shallow,
          .placement = Placement::parse("pre"),
          .norm = NormSpec::parse(norm),
          .preactivated = true,
          .gain = std::sqrt(2.0)};
}

/// How much larger the last hidden state of a Transformer is with weights four times as large.
double weight_scale_effect(const char* placement, std::uint64_t seed) {
  const auto last = [&](double gain, std::uint64_t s) {
    Encoder net({.layers = 12,
                 .placement = Placement::parse(placement),
                 .norm = NormSpec::parse("layer(eps=0, affine=false)"),
                 .gain = gain,
                 .final_norm = false});
    net.initialize(s);
    return second_moment(net(normal_tensor({2, 32, 64}, s, "x")));
  };
  std::vector<double> ratios;
  for (int draw = 0; draw < Draws; ++draw) {
    const std::uint64_t s = draw_seed(seed, draw);
    ratios.push_back(last(4, s) / last(1, s));
  }
  return geometric_mean(ratios);
}

double harmonic(std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 1; i <= n; ++i) sum += 1 / double(i);
  return sum;
}

}  // namespace

void variance_laws(Findings& findings, std::uint64_t seed) {
  constexpr double Share = 0.12;
  const double depth = double(Layers);
  const std::vector<State> weights = draw_weights(placed("none"), seed);
  const std::vector<State> he_weights = draw_weights(residual_net("none"), seed);
  const auto growth_of = [&](const FfnStack::Options& options, bool geometric = false) {
    return growth(options, options.preactivated ? he_weights : weights, seed, geometric);
  };
  const double pre = growth_of(placed("pre"));
  const double peri = growth_of(placed("sandwich"));
  const double scaled = growth_of(placed("scaled_pre"));
  const double post = growth_of(placed("post"));
  FfnStack::Options gated = placed("none");
  gated.gate = Gate::parse("rezero");
  const double per_block =
      std::pow(growth_of(residual_net("none"), /*geometric=*/true), 1 / double(Shallow));
  const double batch = growth_of(residual_net("batch(eps=0, affine=false)"));

  const auto law = [&](const char* what, double expected, double measured) {
    findings.check(what, expected, measured, around(expected, Share));
  };
  law("pre-LN, L=48: 1 + L/2", 1 + depth / 2, pre);
  law("peri-LN, L=48: 1 + L", 1 + depth, peri);
  law("LN scaling, L=48: 1 + H_L/2", 1 + harmonic(Layers) / 2, scaled);
  law("post-LN, L=48: 1", 1, post);
  law("BN before activation, L=16: 1 + L", 1 + double(Shallow), batch);
  findings.check("no norm, factor per block: 2", 2, per_block, around(2, 0.10));
  findings.check("ReZero, L=48: 1", 1, growth_of(gated), Band{1, 1});
  const double peri_scale = weight_scale_effect("sandwich", seed);
  const double pre_scale = weight_scale_effect("pre", seed);
  findings.check("peri-LN, weights x4", 1, peri_scale, around(1, 0.12));
  findings.check("pre-LN, weights x4", std::nullopt, pre_scale, above(50));

  findings.control("peri-LN by the law of pre-LN", peri, around(1 + depth / 2, Share));
  findings.control("pre-LN by the law of LN scaling", pre, around(1 + harmonic(Layers) / 2, Share));
  findings.control("no gate, L=48", growth_of(placed("none"), true), Band{1, 1});
  findings.control("BN, factor per block", std::pow(batch, 1 / double(Shallow)), around(2, 0.10));
  findings.control("no norm, L=16 by the law of BN", std::pow(per_block, double(Shallow)),
                   around(1 + double(Shallow), Share));
  findings.control("pre-LN, weights x4", pre_scale, around(1, 0.12));
  findings.control("peri-LN, weights x4", peri_scale, above(50));
}

}  // namespace steady::examples::claims
