#include <fmt/core.h>

#include <array>
#include <cmath>
#include <numbers>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/reduce.hpp>

#include "examples/claims/experiments.hpp"
#include "examples/claims/ffn_stack.hpp"
#include "examples/claims/measure.hpp"

namespace steady::examples::claims {
namespace {

constexpr std::int64_t Layers = 48;
constexpr int Draws = 8;
constexpr std::array<std::size_t, 3> At{1, 12, 48};

double degrees(double radians) { return radians * 180 / std::numbers::pi; }

/// Mean over the tokens of the angle between the stream before and after a layer.
double turn(const Tensor& before, const Tensor& after) {
  const std::vector<double> a = row_norms(before);
  const std::vector<double> b = row_norms(after);
  const Tensor products = sum(before * after, -1);
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    total += std::acos(double(products.data<float>()[i]) / (a[i] * b[i]));
  }
  return degrees(total / double(a.size()));
}

using Angles = std::array<double, At.size()>;

/// The angle of layers 1, 12 and 48, added to `mean` with the weight of one draw.
void add_angles(FfnStack& stack, const Tensor& x, Angles& mean) {
  const FfnStack::Pass pass = stack(x);
  for (std::size_t i = 0; i < At.size(); ++i) {
    mean[i] += turn(pass.stream[At[i] - 1], pass.stream[At[i]]) / Draws;
  }
}

/// A branch of second moment 1/2 at a right angle to a stream of 1 + (l - 1) / 2.
double law(std::size_t layer) {
  return degrees(std::atan(std::sqrt(0.5 / (1 + (double(layer) - 1) / 2))));
}

}  // namespace

void curse_of_depth_angle(Findings& findings, std::uint64_t seed) {
  constexpr double Share = 0.10;
  Angles pre{};
  Angles post{};
  for (int draw = 0; draw < Draws; ++draw) {
    FfnStack first({.layers = Layers, .placement = Placement::parse("pre")});
    FfnStack second({.layers = Layers, .placement = Placement::parse("post")});
    first.initialize(draw_seed(seed, draw));
    (void)second.load(first.state());
    const Tensor x = normal_tensor({64, first.o.features}, draw_seed(seed, draw), "x");
    add_angles(first, x, pre);
    add_angles(second, x, post);
  }
  for (std::size_t i = 0; i < At.size(); ++i) {
    findings.check(fmt::format("pre-LN, degrees of layer {}", At[i]), law(At[i]), pre[i],
                   around(law(At[i]), Share));
  }
  const Band lost = above(3);
  findings.check("pre-LN, layer 1 / layer 48", law(1) / law(48), pre[0] / pre[2], lost);
  findings.control("post-LN, degrees of layer 12", post[1], around(law(12), Share));
  findings.control("post-LN, layer 1 / layer 48", post[0] / post[2], lost);
}

}  // namespace steady::examples::claims
