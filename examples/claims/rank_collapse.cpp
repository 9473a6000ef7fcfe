#include <fmt/core.h>

#include <cmath>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/layers/attention.hpp>
#include <steadygrad/layers/residual.hpp>

#include "examples/claims/experiments.hpp"
#include "examples/claims/measure.hpp"

namespace steady::examples::claims {
namespace {

constexpr std::int64_t Tokens = 32;
constexpr std::int64_t Features = 64;
constexpr int Draws = 4;

/// Attention and nothing else, each layer joined to the stream by a placement, or bare.
struct AttentionStack : Module {
  struct Options {
    int layers = 0;
    Placement placement = {};
    bool skip = true;
  };
  explicit AttentionStack(const Options& options) : o(options) {
    for (int l = 1; l <= o.layers; ++l) {
      attention.push_back(
          &add<Attention>(fmt::format("attn{}", l), {.dim = Features,
                                                     .heads = 4,
                                                     .qkv_bias = false,
                                                     .out_bias = false,
                                                     .causal = false,
                                                     .weight_init = kaiming_normal_init(1),
                                                     .out_init = kaiming_normal_init(1)}));
      if (!o.skip) continue;
      residual.emplace_back(
          *this, Residual::Options{.placement = o.placement,
                                   .norm = NormSpec::parse("layer(eps=0, affine=false)"),
                                   .features = Features,
                                   .site = {.layer = l, .layers = o.layers, .branches = 1},
                                   .before_name = fmt::format("before{}", l),
                                   .after_name = fmt::format("after{}", l)});
    }
  }

  /// Layer l, from 0. Without a skip the whole matrix is brought back to its size: it would shrink,
  /// the softmax become uniform, and collapse be immediate.
  Tensor layer(std::size_t l, const Tensor& x) {
    const auto attend = [&](const Tensor& h) { return (*attention[l])(h); };
    if (o.skip) return residual[l]({x}, attend).x;
    const Tensor y = attend(x);
    return y * std::sqrt(double(Tokens * Features) / squared_norm(y));
  }

  const Options o;
  std::vector<Attention*> attention;
  std::vector<Residual> residual;
};

/// |x - mean over the tokens| / |x|
double residual_of(const Tensor& x) {
  return std::sqrt(squared_norm(x - mean(x, 1, /*keepdim=*/true)) / squared_norm(x));
}

/// The residual before and after each layer.
std::vector<double> residuals(const AttentionStack::Options& options, std::uint64_t seed) {
  AttentionStack stack(options);
  stack.to(Dtype::F64);
  stack.initialize(seed);
  Tensor x = normal_tensor({1, Tokens, Features}, seed, "x", {.dtype = Dtype::F64});
  std::vector<double> r{residual_of(x)};
  for (std::size_t l = 0; l < stack.attention.size(); ++l) {
    x = stack.layer(l, x);
    r.push_back(residual_of(x));
  }
  return r;
}

}  // namespace

void rank_collapse(Findings& findings, std::uint64_t seed) {
  std::vector<double> exponent;
  std::vector<double> bare;
  std::vector<double> skipped_exponent;
  std::vector<double> skipped4;
  std::vector<double> skipped20;
  std::vector<double> post20;
  for (int draw = 0; draw < Draws; ++draw) {
    const std::uint64_t s = draw_seed(seed, draw);
    const std::vector<double> alone = residuals({.layers = 4, .skip = false}, s);
    exponent.push_back(std::log(alone[4]) / std::log(alone[3]));
    bare.push_back(alone[4]);
    const std::vector<double> pre = residuals({.layers = 20}, s);
    skipped_exponent.push_back(std::log(pre[4]) / std::log(pre[3]));
    skipped4.push_back(pre[4]);
    skipped20.push_back(pre[20]);
    post20.push_back(residuals({.layers = 20, .placement = Placement::parse("post")}, s)[20]);
  }
  const Band cubic{2.8, 3.4};
  const Band collapsed = below(1e-3);
  const Band alive = above(0.15);
  findings.check("exponent, layer 3 to 4", 3, average(exponent), cubic);
  findings.check("residual after 4 layers", std::nullopt, geometric_mean(bare), collapsed);
  findings.check("with skip and pre-LN, 20 layers", std::nullopt, average(skipped20), alive);
  findings.control("exponent with skip", average(skipped_exponent), cubic);
  findings.control("4 layers with skip", geometric_mean(skipped4), collapsed);
  findings.control("4 layers without skip", geometric_mean(bare), alive);
  findings.control("skip and post-LN, 20 layers", average(post20), alive);
}

}  // namespace steady::examples::claims
