#include <fmt/core.h>

#include <array>
#include <cmath>
#include <numbers>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/matmul.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>

#include "examples/claims/experiments.hpp"
#include "examples/claims/measure.hpp"

// A plain net y_l = h_(l-1) W_l^T, h_l = relu(BN(y_l)) at its initial weights: how much larger is
// the squared gradient of y_l than that of y_(l+1)?

namespace steady::examples::claims {
namespace {

constexpr std::int64_t Width = 256;
constexpr int Layers = 40;
constexpr int Draws = 10;

enum class Norm { Batch, ConstantStatistics, None };

struct Net {
  std::int64_t batch = 8;
  bool relu = true;
  Norm norm = Norm::Batch;
  double gain = 1;  // of the weights
};

/// A backward that is wrong as one that takes mean and variance for constants.
Tensor with_constant_statistics(const Tensor& y) {
  return batch_norm_eval(y, mean(y.detach(), 0), var(y.detach(), 0, {.unbiased = false}), {}, {},
                         0.0);
}

Tensor normalized(const Tensor& y, Norm norm) {
  switch (norm) {
    case Norm::Batch:
      return batch_norm(y, {}, {}, 0.0).y;
    case Norm::ConstantStatistics:
      return with_constant_statistics(y);
    case Norm::None:
      break;
  }
  return y;
}

/// The factor of the squared gradient per layer, from layer 35 down to layer 5: the ends are left
/// out. One set of weights.
double rate(const Net& net, std::span<const Tensor> weights, std::uint64_t seed) {
  std::array<double, Layers> squares{};
  Tensor h = normal_tensor({net.batch, Width}, seed, "x");
  h.set_requires_grad();
  Tape tape;
  for (std::size_t l = 0; l < Layers; ++l) {
    const Tensor y = linear(h, net.gain == 1 ? weights[l] : weights[l] * net.gain);
    tape.on_gradient(y, [&squares, l](const Tensor& g) { squares[l] = squared_norm(g); });
    const Tensor z = normalized(y, net.norm);
    h = net.relu ? relu(z) : z;
  }
  const Gradients gradients =
      tape.backward(h, {.cotangent = normal_tensor({net.batch, Width}, seed, "c")});
  return std::exp((std::log(squares[4]) - std::log(squares[34])) / 30);
}

/// Infinite width, batch B                                          [Yang et al. 2019, theorem 8]
double relu_law(double batch) {
  const double c = -1 / (batch - 1);
  const double angle = std::numbers::pi - std::acos(c);
  const double j = (std::sqrt(1 - c * c) + angle * c) / std::numbers::pi;
  const double j1 = angle / std::numbers::pi;
  return ((batch - 1 + j1) / (1 - j) - 1) / (batch - 3);
}

/// [theorem 9]
double linear_law(double batch) { return (batch - 2) / (batch - 3); }

struct Measured {
  Net net;
  std::vector<double> rates = {};
  [[nodiscard]] double mean() const { return average(rates); }
};

}  // namespace

void bn_explosion(Findings& findings, std::uint64_t seed) {
  enum { Relu8, Relu32, Linear8, Linear16, Half, Triple, Wrong8, Plain8, Plain, PlainTriple };
  std::array<Measured, 10> nets{{{{.batch = 8}},
                                 {{.batch = 32}},
                                 {{.batch = 8, .relu = false}},
                                 {{.batch = 16, .relu = false}},
                                 {{.batch = 32, .gain = 0.5}},
                                 {{.batch = 32, .gain = 3}},
                                 {{.batch = 8, .norm = Norm::ConstantStatistics}},
                                 {{.batch = 8, .relu = false, .norm = Norm::None}},
                                 {{.batch = 32, .norm = Norm::None}},
                                 {{.batch = 32, .norm = Norm::None, .gain = 3}}}};
  for (int draw = 0; draw < Draws; ++draw) {
    const std::uint64_t s = draw_seed(seed, draw);
    std::vector<Tensor> weights;
    for (int l = 0; l < Layers; ++l) {
      weights.push_back(normal_tensor({Width, Width}, s, fmt::format("w{}", l),
                                      {.stddev = 1 / std::sqrt(double(Width))}));
    }
    for (Measured& m : nets) m.rates.push_back(rate(m.net, weights, s));
  }

  constexpr double Share = 0.03;
  const auto check = [&](const char* what, double expected, int net) {
    findings.check(what, expected, nets[std::size_t(net)].mean(), around(expected, Share));
  };
  check("squared rate, relu, B=8", relu_law(8), Relu8);
  check("squared rate, relu, B=32", relu_law(32), Relu32);
  check("squared rate, linear, B=8", linear_law(8), Linear8);
  check("squared rate, linear, B=16", linear_law(16), Linear16);
  const auto change = [&](int from, int to) {
    return std::abs(nets[std::size_t(to)].mean() / nets[std::size_t(from)].mean() - 1);
  };
  findings.check("change, weights halved", 0, change(Relu32, Half), below(0.01));
  findings.check("change, weights tripled", 0, change(Relu32, Triple), below(0.01));

  findings.control("statistics as constants, B=8", nets[Wrong8].mean(), around(relu_law(8), Share));
  findings.control("relu, B=32 by the law of B=8", nets[Relu32].mean(), around(relu_law(8), Share));
  findings.control("linear without BN, B=8", nets[Plain8].mean(), around(linear_law(8), Share));
  findings.control("no BN, weights tripled", change(Plain, PlainTriple), below(0.01));
}

}  // namespace steady::examples::claims
