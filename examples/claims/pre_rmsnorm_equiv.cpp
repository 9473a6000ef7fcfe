#include <fmt/core.h>

#include <cmath>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/matmul.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/layers/norm/layer_norm.hpp>
#include <steadygrad/layers/norm/rms_norm.hpp>

#include "examples/claims/experiments.hpp"
#include "examples/claims/measure.hpp"

namespace steady::examples::claims {
namespace {

constexpr std::int64_t Features = 64;
constexpr std::size_t Blocks = 8;

struct Weights {
  std::vector<Tensor> up, down;  // [Features, Features] each
};

Tensor centred(const Tensor& x) { return x - mean(x, -1, /*keepdim=*/true); }

Tensor branch(const Tensor& h, const Weights& w, std::size_t block) {
  return linear(relu(linear(h, w.up[block])), w.down[block]);
}

/// x + f(LN(x)) in every block and a last LN.
Tensor with_layer_norm(Tensor x, const Weights& w) {
  const auto norm = [](const Tensor& h) { return layer_norm(h, {Features}, {}, {}, 0.0); };
  for (std::size_t b = 0; b < Blocks; ++b) x = x + branch(norm(x), w, b);
  return norm(x);
}

/// x + centred(f(RMS(x))): the stream stays centred, where both norms agree.
Tensor with_rms_norm(const Tensor& input, const Weights& w, bool centre_input,
                     bool centre_branches) {
  const auto norm = [](const Tensor& h) { return rms_norm(h, {Features}, {}, 0.0); };
  Tensor x = centre_input ? centred(input) : input;
  for (std::size_t b = 0; b < Blocks; ++b) {
    const Tensor f = branch(norm(x), w, b);
    x = x + (centre_branches ? centred(f) : f);
  }
  return norm(x);
}

/// The same with one feature less: the last one is minus the sum of the others.
///   CRMS(x) = x / sqrt((sum(x^2) + sum(x)^2) / d)                        [Jiang et al. 2023, eq.
///   7]
Tensor with_compressed_norm(const Tensor& input, const Weights& w) {
  const auto compress = [](const Tensor& x) { return slice(x, -1, 0, Features - 1); };
  const auto expand = [](const Tensor& x) {
    return concat({x, neg(sum(x, -1, /*keepdim=*/true))}, -1);
  };
  const auto norm = [](const Tensor& x) {
    const Tensor squares = sum(square(x), -1, true) + square(sum(x, -1, true));
    return x / sqrt(squares / double(Features));
  };
  Tensor x = compress(centred(input));
  for (std::size_t b = 0; b < Blocks; ++b) {
    x = x + compress(centred(branch(expand(norm(x)), w, b)));
  }
  return expand(norm(x));
}

}  // namespace

void pre_rmsnorm_equiv(Findings& findings, std::uint64_t seed) {
  Weights w;
  const double spread = 1 / std::sqrt(double(Features));
  for (std::size_t b = 0; b < Blocks; ++b) {
    const auto draw = [&](const char* name) {
      return normal_tensor({Features, Features}, seed, fmt::format("{}{}", name, b),
                           {.stddev = spread, .dtype = Dtype::F64});
    };
    w.up.push_back(draw("up"));
    w.down.push_back(draw("down"));
  }
  const Tensor x = normal_tensor({16, Features}, seed, "x", {.dtype = Dtype::F64});
  const Tensor y = with_layer_norm(x, w);
  const Band equal = below(1e-10);
  const auto difference = [&](const Tensor& other) { return relative_difference(other, y); };
  findings.check("RMSNorm of a centred stream", 0, difference(with_rms_norm(x, w, true, true)),
                 equal);
  findings.check("CRMSNorm, one feature less", 0, difference(with_compressed_norm(x, w)), equal);
  findings.control("input not centred", difference(with_rms_norm(x, w, false, true)), equal);
  findings.control("branches not centred", difference(with_rms_norm(x, w, true, false)), equal);
}

}  // namespace steady::examples::claims
