#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <steadygrad/core/ops/loss.hpp>
#include <steadygrad/core/ops/matmul.hpp>
#include <steadygrad/core/tape.hpp>

#include "examples/claims/experiments.hpp"
#include "examples/claims/ffn_stack.hpp"
#include "examples/claims/measure.hpp"

namespace steady::examples::claims {
namespace {

constexpr std::int64_t Features = 128;
constexpr std::int64_t Tokens = 128;
constexpr std::int64_t Classes = 64;
/// The single draw scatters by some 13 percent at depth 64, by some 5 at depth 8.
constexpr int draws_at(std::int64_t layers) { return layers < 32 ? 6 : layers < 64 ? 16 : 24; }
constexpr std::array<std::int64_t, 6> Depths{2, 4, 8, 16, 32, 64};

/// Of each layer, the root mean square over the tokens of the gradient of its second matrix: a
/// token's is an outer product of norm |h| |delta|. The sum over the tokens would not do: they
/// align with depth and add up.
std::vector<double> token_gradients(const char* placement, std::int64_t layers,
                                    std::uint64_t seed) {
  FfnStack stack({.features = Features,
                  .layers = layers,
                  .placement = Placement::parse(placement),
                  .final_norm = true});
  stack.initialize(seed);
  stack.freeze();  // the gradients of the weights are made of h and delta below
  const Tensor head =
      normal_tensor({Classes, Features}, seed, "head", {.stddev = 1 / std::sqrt(double(Features))});
  Tensor x = normal_tensor({Tokens, Features}, seed, "x");
  x.set_requires_grad();
  Tape tape;
  const FfnStack::Pass pass = stack(x);
  std::vector<double> gradients(pass.branch.size());
  for (std::size_t l = 0; l < gradients.size(); ++l) {
    tape.on_gradient(pass.branch[l], [&, l](const Tensor& delta) {
      const std::vector<double> h = row_norms(pass.hidden[l]);
      const std::vector<double> d = row_norms(delta);
      double sum = 0;
      for (std::size_t i = 0; i < h.size(); ++i) sum += h[i] * h[i] * d[i] * d[i];
      gradients[l] = std::sqrt(sum / double(Tokens));
    });
  }
  const Tensor loss =
      cross_entropy(linear(pass.y, head), random_labels({Tokens}, Classes, seed, "labels"),
                    {.reduction = Reduction::Sum});
  const Gradients all = tape.backward(loss);
  return gradients;
}

/// The mean over the draws, layer by layer.
std::vector<double> mean_gradients(const char* placement, std::int64_t layers, std::uint64_t seed) {
  const int draws = draws_at(layers);
  std::vector<double> sum(static_cast<std::size_t>(layers));
  for (int draw = 0; draw < draws; ++draw) {
    const std::vector<double> g = token_gradients(placement, layers, draw_seed(seed, draw));
    for (std::size_t l = 0; l < sum.size(); ++l) sum[l] += g[l] / draws;
  }
  return sum;
}

/// Largest over smallest of g_l sqrt(1 + l / 2), or of g_l itself.
double spread(std::span<const double> g, bool by_law) {
  double low = 1e300;
  double high = 0;
  for (std::size_t l = 0; l < g.size(); ++l) {
    const double value = g[l] * (by_law ? std::sqrt(1 + double(l + 1) / 2) : 1);
    low = std::min(low, value);
    high = std::max(high, value);
  }
  return high / low;
}

}  // namespace

void xiong_ratio(Findings& findings, std::uint64_t seed) {
  std::vector<double> depth;
  std::vector<double> post;
  std::vector<double> pre;
  double flat_by_law = 0;
  double flat_plain = 0;
  for (const std::int64_t layers : Depths) {
    const std::vector<double> p = mean_gradients("pre", layers, seed);
    depth.push_back(double(layers));
    pre.push_back(p.back());
    post.push_back(mean_gradients("post", layers, seed).back());
    if (layers == 32) {
      flat_by_law = spread(p, true);
      flat_plain = spread(p, false);
    }
  }
  // Both have the same hidden values and the same gradient at the top; each last norm divides by
  // the root mean square of what enters it, 1.5 and 1 + L / 2.
  const auto law = [](double layers) { return std::sqrt((1 + layers / 2) / 1.5); };
  constexpr double Share = 0.10;
  for (std::size_t i = 0; i < depth.size(); ++i) {
    findings.check(fmt::format("post / pre, L={}", Depths[i]), law(depth[i]), post[i] / pre[i],
                   around(law(depth[i]), Share));
  }
  const Band flat{-0.05, 0.05};
  const Band falling{-0.55, -0.38};
  const auto deep = [](std::span<const double> values) { return values.subspan(2); };
  const double post_slope = log_log_slope(depth, post);
  const double pre_slope = log_log_slope(deep(depth), deep(pre));
  findings.check("slope over L, post", 0, post_slope, flat);
  findings.check("slope over L >= 8, pre", -0.5, pre_slope, falling);
  findings.check("pre, g sqrt(1 + l/2), max / min", 1, flat_by_law, below(1.25));
  findings.control("slope over L, pre", log_log_slope(depth, pre), flat);
  findings.control("slope over L >= 8, post", log_log_slope(deep(depth), deep(post)), falling);
  findings.control("post L=8 / post L=64", post[2] / post[5], around(law(64), Share));
  findings.control("pre, g alike in all layers", flat_plain, below(1.25));
}

}  // namespace steady::examples::claims
