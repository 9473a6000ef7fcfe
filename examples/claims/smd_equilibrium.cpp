#include <algorithm>
#include <cmath>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/loss.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <steadygrad/optim/sgd.hpp>

#include "examples/claims/experiments.hpp"
#include "examples/claims/measure.hpp"

// A weight matrix before a BatchNorm has no say in its own length: its gradient is orthogonal to
// it. A step of SGD then makes it longer by lr^2 |g|^2, weight decay shorter; they balance where
// every step turns it by sqrt(2 lr decay), whatever the loss.

namespace steady::examples::claims {
namespace {

constexpr double Rate = 0.2;
constexpr double Decay = 0.02;
constexpr std::int64_t Batch = 64;

struct Net : Layer {
  struct Options {
    NormSpec norm = NormSpec::parse("batch(eps=1e-8)");
  };
  explicit Net(const Options& options) : o(options) {}

  Options o;
  Linear& first = linear("first", 32, 64);
  Layer& norm1 = add_norm("norm1", o.norm, 64);
  Linear& second = linear("second", 64, 64);
  Layer& norm2 = add_norm("norm2", o.norm, 64);
  Linear& head = linear("head", 64, 10);

  Linear& linear(const char* name, std::int64_t in, std::int64_t out) {
    return add<Linear>(
        name,
        {.in = in, .out = out, .bias = false, .weight_init = kaiming_normal_init(std::sqrt(2.0))});
  }
  Tensor forward(const Tensor& x) override {
    return head(relu(norm2(second(relu(norm1(first(x)))))));
  }
};

/// One step of SGD on a batch; returns the gradient of the second matrix.
Tensor train_step(Net& net, Sgd& optimizer, const Clusters& batch) {
  Tape tape;
  const Tensor loss = cross_entropy(net(batch.x), batch.y);
  const Gradients gradients = tape.backward(loss);
  optimizer.step(gradients);
  return gradients[net.second.weight];
}

struct Equilibrium {
  double angle = 0;  // rms of the angle of a step / sqrt(2 lr decay)
  double norm = 0;   // mean |w| / (lr mean(|g|^2 |w|^2) / (2 decay))^(1/4)
};

/// The second half of 1200 steps.
Equilibrium equilibrium(const NormSpec& norm, std::uint64_t seed) {
  constexpr int Steps = 1200;
  const Clusters data = make_clusters({.random_labels = 0.2}, seed);
  Net net({norm});
  net.initialize(seed);
  // The head has no norm behind it and is left to itself.
  const auto is_head = [](const Parameter& p) { return p.name == "head.weight"; };
  Sgd optimizer(
      net.parameters(),
      {.lr = Rate, .weight_decay = Decay, .groups = {{.matches = is_head, .weight_decay = 0.0}}});
  double squared_angle = 0;
  double length = 0;
  double product = 0;
  for (int step = 0; step < Steps; ++step) {
    const Tensor w = net.second.weight.detached_copy();
    const Tensor g = train_step(net, optimizer, draw_batch(data, Batch, seed, step));
    if (step < Steps / 2) continue;
    const double size = std::sqrt(squared_norm(w));
    const Tensor after = net.second.weight.detach();
    // The chord: a cosine so near to 1 would have no digits left.
    const Tensor chord = after / std::sqrt(squared_norm(after)) - w / size;
    const double angle = 2 * std::asin(std::sqrt(squared_norm(chord)) / 2);
    squared_angle += angle * angle;
    length += size;
    product += squared_norm(g) * size * size;
  }
  constexpr int FirstHalf = Steps / 2;
  constexpr double Count = Steps - FirstHalf;
  return {.angle = std::sqrt(squared_angle / Count) / std::sqrt(2 * Rate * Decay),
          .norm = length / Count / std::pow(Rate * product / Count / (2 * Decay), 0.25)};
}

/// Without decay: largest | (|w'|^2 - |w|^2) / (lr^2 |g|^2) - 1 | over 100 steps in float64. eps in
/// the norm would leave a small component along w.
double growth_error(const NormSpec& norm, std::uint64_t seed) {
  const Clusters data = make_clusters({.random_labels = 0.2, .dtype = Dtype::F64}, seed);
  Net net({norm});
  net.to(Dtype::F64);
  net.initialize(seed);
  Sgd optimizer(net.parameters(), {.lr = Rate});
  double worst = 0;
  for (int step = 0; step < 100; ++step) {
    const double before = squared_norm(net.second.weight);
    const Tensor g = train_step(net, optimizer, draw_batch(data, Batch, seed, step));
    const double growth = squared_norm(net.second.weight) - before;
    worst = std::fmax(worst, std::abs(growth / (Rate * Rate * squared_norm(g)) - 1));
  }
  return worst;
}

}  // namespace

void smd_equilibrium(Findings& findings, std::uint64_t seed) {
  const Band turning{0.97, 1.04};
  const Band length{0.97, 1.03};
  const Band exact = below(1e-9);
  const Equilibrium with = equilibrium(NormSpec::parse("batch(eps=1e-8)"), seed);
  const Equilibrium without = equilibrium(NormSpec(), seed);
  findings.check("angle of a step / law", 1, with.angle, turning);
  findings.check("length of the weights / law", 1, with.norm, length);
  findings.check("without decay, growth / (lr g)^2 - 1", 0,
                 growth_error(NormSpec::parse("batch(eps=0)"), seed), exact);
  findings.control("no BN, angle", without.angle, turning);
  findings.control("no BN, length", without.norm, length);
  findings.control("no BN, growth", growth_error(NormSpec(), seed), exact);
}

}  // namespace steady::examples::claims
