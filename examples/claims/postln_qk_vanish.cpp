#include <fmt/core.h>
#include <cmath>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/embedding.hpp>
#include <steadygrad/core/ops/loss.hpp>
#include <steadygrad/core/ops/matmul.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/tape.hpp>

#include "examples/claims/encoder.hpp"
#include "examples/claims/experiments.hpp"
#include "examples/claims/measure.hpp"

namespace steady::examples::claims {
namespace {

constexpr std::int64_t Layers = 24;
constexpr std::int64_t Batch = 4;
constexpr std::int64_t Tokens = 32;
constexpr std::int64_t Letters = 64;
constexpr int Draws = 4;

/// Mean cosine of two different tokens of a sequence, x [B, T, dim].
double token_cosine(const Tensor& x) {
  const Tensor units = x / sqrt(sum(square(x), -1, /*keepdim=*/true));
  const double together = squared_norm(sum(units, 1)) / double(x.dim(0));
  const auto tokens = double(x.dim(1));
  return (together - tokens) / (tokens * (tokens - 1));
}

struct Depths {
  double cosine = 0;  // of the tokens after the last block
  double ratio = 0;   // |dWq| of the last block over that of the first
};

Depths look(const Placement& placement, std::uint64_t seed) {
  Encoder net({.layers = Layers, .placement = placement});
  net.keep_stream = true;
  net.initialize(seed);
  const double spread = 1 / std::sqrt(double(net.o.dim));
  const Tensor head = normal_tensor({Letters, net.o.dim}, seed, "head", {.stddev = spread});
  const Tensor x = embedding(normal_tensor({Letters, net.o.dim}, seed, "tokens"),
                             random_labels({Batch, Tokens}, Letters, seed, "ids"));
  Tape tape;
  const Tensor loss =
      cross_entropy(linear(net(x), head), random_labels({Batch, Tokens}, Letters, seed, "labels"),
                    {.reduction = Reduction::Sum});
  const double cosine = token_cosine(net.stream.back().detach());
  const Gradients gradients = tape.backward(loss);
  const State state = net.state();
  const auto size = [&](std::int64_t layer) {
    const Tensor w = find(state, fmt::format("{}.self_attn.q_proj.weight", layer));
    return std::sqrt(squared_norm(gradients[w]));
  };
  return {cosine, size(Layers - 1) / size(0)};
}

/// Arithmetic mean of the cosines, geometric one of the ratios.
Depths look_often(const char* placement, std::uint64_t seed) {
  std::vector<double> cosines;
  std::vector<double> ratios;
  for (int draw = 0; draw < Draws; ++draw) {
    const Depths d = look(Placement::parse(placement), draw_seed(seed, draw));
    cosines.push_back(d.cosine);
    ratios.push_back(d.ratio);
  }
  return {average(cosines), geometric_mean(ratios)};
}

}  // namespace

void postln_qk_vanish(Findings& findings, std::uint64_t seed) {
  const Depths post = look_often("post", seed);
  const Depths pre = look_often("pre", seed);
  const Depths deepnorm = look_often("deepnorm", seed);
  const Band aligned = above(0.98);
  const Band vanished = below(1e-3);
  const Band apart = below(0.1);
  const Band even{0.7, 1.4};
  findings.check("post-LN, cosine of tokens", 1, post.cosine, aligned);
  findings.check("post-LN, |dWq| last / first", std::nullopt, post.ratio, vanished);
  findings.check("pre-LN, |dWq| last / first", std::nullopt, pre.ratio, above(1e-2));
  findings.check("DeepNorm, cosine of tokens", 0, deepnorm.cosine, apart);
  findings.check("DeepNorm, |dWq| last / first", 1, deepnorm.ratio, even);
  findings.control("pre-LN, cosine", pre.cosine, aligned);
  findings.control("pre-LN, |dWq|", pre.ratio, vanished);
  findings.control("post-LN, |dWq|", post.ratio, above(1e-2));
  findings.control("post-LN, cosine", post.cosine, apart);
  findings.control("pre-LN, |dWq|", pre.ratio, even);
}

}  // namespace steady::examples::claims
