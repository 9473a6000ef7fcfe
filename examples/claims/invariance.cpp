#include <array>
#include <cmath>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/matmul.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/layers/norm/layer_norm.hpp>
#include <steadygrad/layers/norm/rms_norm.hpp>
#include <steadygrad/layers/norm/weight_norm.hpp>

#include "examples/claims/experiments.hpp"
#include "examples/claims/measure.hpp"

namespace steady::examples::claims {
namespace {

constexpr std::int64_t Outputs = 32;
constexpr std::int64_t Inputs = 24;
constexpr std::int64_t Samples = 16;

// --- y = norm(x W^T): x [Samples, Inputs], W [Outputs, Inputs] ---

using Net = Tensor (*)(const Tensor& x, const Tensor& w);

Tensor plain(const Tensor& x, const Tensor& w) { return linear(x, w); }
Tensor batch(const Tensor& x, const Tensor& w) { return batch_norm(linear(x, w), {}, {}, 0.0).y; }
Tensor layer(const Tensor& x, const Tensor& w) {
  return layer_norm(linear(x, w), {Outputs}, {}, {}, 0.0);
}
Tensor rms(const Tensor& x, const Tensor& w) { return rms_norm(linear(x, w), {Outputs}, {}, 0.0); }
Tensor weight(const Tensor& x, const Tensor& w) {
  return linear(x, weight_norm(w, Tensor::ones({Outputs, 1}, w.dtype())));
}
/// A bias before the norm takes the invariance of the scale away.
Tensor biased_layer(const Tensor& x, const Tensor& w) {
  const Tensor bias = normal_tensor({Outputs}, 0, "bias", {.dtype = w.dtype()});
  return layer_norm(linear(x, w, bias), {Outputs}, {}, {}, 0.0);
}

// --- the changes of W and x ---

struct Problem {
  Tensor x, w;
  Tensor row_scale;     // [Outputs, 1] in (0.5, 1.5)
  Tensor shift;         // [Inputs]
  Tensor sample_scale;  // [Samples, 1] in (0.5, 1.5)
};

using Change = void (*)(Problem& p);

constexpr double Factor = 2.3;
constexpr std::array<Change, 6> Changes{
    [](Problem& p) { p.w = p.w * Factor; },      [](Problem& p) { p.w = p.w + p.shift; },
    [](Problem& p) { p.w = p.w * p.row_scale; }, [](Problem& p) { p.x = p.x * Factor; },
    [](Problem& p) { p.x = p.x + p.shift; },     [](Problem& p) { p.x = p.x * p.sample_scale; },
};

struct Column {
  Net net;
  std::array<bool, Changes.size()> invariant;
};
/// Table 1 of Zhang & Sennrich: re-scaling of the weight matrix, its re-centring, re-scaling of the
/// weight vectors, re-scaling of the data set, its re-centring, re-scaling of single cases.
constexpr std::array<Column, 4> Table{{
    {batch, {true, false, true, true, true, false}},
    {weight, {true, false, true, false, false, false}},
    {layer, {true, true, false, true, false, true}},
    {rms, {true, false, false, true, false, true}},
}};

Problem make_problem(std::uint64_t seed) {
  const auto uniform = [&](const Shape& shape, const char* name) {
    Tensor t = Tensor::empty(shape, Dtype::F64);
    Random random(seed, name);
    for (double& v : t.mutable_data<double>()) v = random.uniform(0.5, 1.5);
    return t;
  };
  return {.x = normal_tensor({Samples, Inputs}, seed, "x", {.dtype = Dtype::F64}),
          .w = normal_tensor({Outputs, Inputs}, seed, "w", {.dtype = Dtype::F64}),
          .row_scale = uniform({Outputs, 1}, "row scale"),
          .shift = normal_tensor({Inputs}, seed, "shift", {.dtype = Dtype::F64}),
          .sample_scale = uniform({Samples, 1}, "sample scale")};
}

double effect(Net net, const Problem& p, Change change) {
  Problem changed = p;
  change(changed);
  return relative_difference(net(changed.x, changed.w), net(p.x, p.w));
}

/// dL/dW of L = sum(G * tanh(y)).
Tensor weight_gradient(Net net, const Problem& p, const Tensor& w, std::uint64_t seed) {
  const Tensor g = normal_tensor({Samples, Outputs}, seed, "g", {.dtype = Dtype::F64});
  Tensor leaf = w.detached_copy();
  leaf.set_requires_grad();
  Tape tape;
  const Tensor loss = sum(tanh(net(p.x, leaf)) * g);
  return tape.backward(loss)[leaf].detached_copy();
}

/// |a dL/d(aW) - dL/dW| relative to dL/dW, the larger of a = 10 and 0.1.
double gradient_law(Net net, const Problem& p, std::uint64_t seed) {
  const Tensor g = weight_gradient(net, p, p.w, seed);
  double worst = 0;
  for (const double a : {10.0, 0.1}) {
    const Tensor scaled = weight_gradient(net, p, p.w * a, seed) * a;
    worst = std::fmax(worst, relative_difference(scaled, g));
  }
  return worst;
}

/// Largest |<w_i, dw_i>| / (|w_i| |dw_i|) over the rows of W, or the same of W as a whole.
double radial_part(Net net, const Problem& p, std::uint64_t seed, bool by_row) {
  const Tensor g = weight_gradient(net, p, p.w, seed);
  if (!by_row) return std::abs(dot(p.w, g)) / std::sqrt(squared_norm(p.w) * squared_norm(g));
  const Tensor products = sum(p.w * g, -1);
  const std::vector<double> w = row_norms(p.w);
  const std::vector<double> dw = row_norms(g);
  double worst = 0;
  for (std::size_t row = 0; row < w.size(); ++row) {
    worst = std::fmax(worst, std::abs(products.data<double>()[row]) / (w[row] * dw[row]));
  }
  return worst;
}

}  // namespace

void invariance(Findings& findings, std::uint64_t seed) {
  const Problem p = make_problem(seed);
  const Band same = below(1e-10);
  const Band different = above(1e-2);

  double largest_same = 0;
  double smallest_different = 1;
  double law = 0;
  double whole = 0;
  for (const Column& column : Table) {
    for (std::size_t i = 0; i < Changes.size(); ++i) {
      const double change = effect(column.net, p, Changes[i]);
      if (column.invariant[i]) {
        largest_same = std::fmax(largest_same, change);
      } else {
        smallest_different = std::fmin(smallest_different, change);
      }
    }
    law = std::fmax(law, gradient_law(column.net, p, seed));
    whole = std::fmax(whole, radial_part(column.net, p, seed, false));
  }
  findings.check("change, 13 invariant cells", 0, largest_same, same);
  findings.check("change, the other 11 cells", std::nullopt, smallest_different, different);
  findings.check("a dL/d(aW) against dL/dW", 0, law, same);
  findings.check("<W, dW> of the matrix", 0, whole, same);
  findings.check("<w, dw> by row, BN and WN", 0,
                 std::fmax(radial_part(batch, p, seed, true), radial_part(weight, p, seed, true)),
                 same);

  double least = 1;
  for (const Change change : Changes) least = std::fmin(least, effect(plain, p, change));
  findings.control("no norm, its least change", least, same);
  findings.control("LN after a bias, W scaled", effect(biased_layer, p, Changes[0]), same);
  findings.control("BN, data scaled", effect(batch, p, Changes[3]), different);
  findings.control("no norm, a dL/d(aW)", gradient_law(plain, p, seed), same);
  findings.control("no norm, <W, dW>", radial_part(plain, p, seed, false), same);
  findings.control("<w, dw> by row, LN", radial_part(layer, p, seed, true), same);
}

}  // namespace steady::examples::claims
