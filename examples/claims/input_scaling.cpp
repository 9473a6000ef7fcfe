#include <algorithm>
#include <array>
#include <cmath>
#include <steadygrad/core/curvature.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/matmul.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/layers/norm/scaling.hpp>

#include "examples/claims/experiments.hpp"
#include "examples/claims/mlp_net.hpp"

namespace steady::examples::claims {
namespace {

constexpr std::int64_t Features = 20;
constexpr std::int64_t Classes = 5;

/// Clusters whose features have scales from 1e-2 to 1e2 and lie ten deviations from zero; with
/// outliers, one value in a thousand is a hundred deviations away.
Clusters make_raw(bool outliers, std::uint64_t seed) {
  Clusters data = make_clusters(
      {.samples = 2048, .features = Features, .classes = Classes, .dtype = Dtype::F64}, seed);
  Random random(seed, "outliers");
  const auto x = data.x.mutable_data<double>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto feature = double(i % std::size_t(Features));
    if (outliers && random.uniform() < 1e-3) x[i] += random.uniform() < 0.5 ? -100 : 100;
    x[i] = (x[i] + 10) * std::pow(10.0, -2 + 4 * feature / double(Features - 1));
  }
  return data;
}

/// x as a scaling that was fitted to it gives it.
template <class Scale>
Tensor scaled(const Tensor& x) {
  Scale scale({.features = Features});
  scale.fit(x);
  return scale(x);
}
Tensor min_max(const Tensor& x) { return scaled<MinMaxScale>(x); }
Tensor standardized(const Tensor& x) { return scaled<Standardize>(x); }

struct Net : Layer {
  struct Options {
    NormSpec input_norm = {};
  };
  explicit Net(const Options& options) : o(options) {}

  Options o;
  Layer& input_norm = add_norm("input_norm", o.input_norm, Features);
  Linear& hidden = add<Linear>("hidden", {.in = Features,
                                          .out = 32,
                                          .weight_init = kaiming_normal_init(std::sqrt(2.0)),
                                          .bias_init = constant_init(0)});
  Linear& head = add<Linear>("head", {.in = 32,
                                      .out = Classes,
                                      .weight_init = kaiming_normal_init(1),
                                      .bias_init = constant_init(0)});
  Tensor forward(const Tensor& x) override { return head(relu(hidden(input_norm(x)))); }
};

/// Loss after 200 steps of plain SGD at 0.1.
double trained(const Tensor& x, const Tensor& y, const char* input_norm, std::uint64_t seed) {
  Net net({NormSpec::parse(input_norm)});
  net.initialize(seed);
  const MlpTraining training{.lr = 0.1, .steps = 200};
  return last_loss(train(net, {x.detached_copy(Dtype::F32), y}, training, seed), training);
}

/// Largest over smallest eigenvalue of x^T x.
double condition_number(const Tensor& x) {
  const Tensor gram = matmul(x, x, {.transpose_a = true});
  const std::array like{Tensor::zeros({Features}, Dtype::F64)};
  const EigenvalueOptions options{.iterations = int(Features), .tolerance = 1e-12};
  const double largest =
      top_eigenvalue([&](auto v) { return std::vector{matmul(gram, v[0])}; }, like, options).value;
  // The smallest one as the largest of the mirrored spectrum.
  const double mirrored =
      top_eigenvalue([&](auto v) { return std::vector{v[0] * largest - matmul(gram, v[0])}; }, like,
                     options)
          .value;
  return largest / (largest - mirrored);
}

/// Loss of min-max scaled over that of standardized inputs, the geometric mean of four draws.
double loss_ratio(bool outliers, const char* input_norm, std::uint64_t seed) {
  std::vector<double> ratios;
  for (int draw = 0; draw < 4; ++draw) {
    const std::uint64_t s = draw_seed(seed, draw);
    const Clusters raw = make_raw(outliers, s);
    ratios.push_back(trained(min_max(raw.x), raw.y, input_norm, s) /
                     trained(standardized(raw.x), raw.y, input_norm, s));
  }
  return geometric_mean(ratios);
}

}  // namespace

void input_scaling(Findings& findings, std::uint64_t seed) {
  const Clusters raw = make_raw(false, draw_seed(seed, 0));
  const auto batch = [](const Tensor& x) { return batch_norm(x, {}, {}, 0.0).y; };
  const Tensor normed = batch(standardized(raw.x));
  const double same = std::fmax(relative_difference(batch(raw.x), normed),
                                relative_difference(batch(min_max(raw.x)), normed));

  const Band slower = above(2.5);
  const Band stuck = above(1.4);
  const Band equal = below(1e-10);
  findings.check("raw, loss", std::log(double(Classes)), trained(raw.x, raw.y, "none", seed),
                 stuck);
  findings.check("min-max / standardized, loss", std::nullopt, loss_ratio(false, "none", seed),
                 slower);
  findings.check("the same with outliers", std::nullopt, loss_ratio(true, "none", seed), slower);
  findings.check("min-max / standardized, condition", std::nullopt,
                 condition_number(min_max(raw.x)) / condition_number(standardized(raw.x)),
                 above(10));
  findings.check("BN of the three inputs", 0, same, equal);
  findings.control("standardized, loss", trained(standardized(raw.x), raw.y, "none", seed), stuck);
  findings.control("BN at the input, min-max / standardized", loss_ratio(false, "batch", seed),
                   slower);
  findings.control("min-max and standardized as they are",
                   relative_difference(min_max(raw.x), standardized(raw.x)), equal);
}

}  // namespace steady::examples::claims
