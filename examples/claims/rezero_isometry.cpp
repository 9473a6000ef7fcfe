#include <array>
#include <cmath>
#include <steadygrad/core/curvature.hpp>
#include <steadygrad/core/ops/matmul.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/tape.hpp>

#include "examples/claims/experiments.hpp"
#include "examples/claims/mlp_net.hpp"

namespace steady::examples::claims {
namespace {

MlpNet::Options net_of(const char* placement, const char* gate, std::int64_t layers) {
  return {.layers = layers, .placement = placement, .gate = Gate::parse(gate)};
}

/// d features / d x at a random point: [width, width].
Tensor jacobian(const MlpNet::Options& options, std::uint64_t seed) {
  MlpNet net(options);
  net.to(Dtype::F64);
  net.initialize(seed);
  const std::int64_t n = options.width;
  // Row i of the batch is the same point with the i-th unit vector as its cotangent.
  Tensor x = copy(broadcast_to(normal_tensor({1, n}, seed, "x", {.dtype = Dtype::F64}), {n, n}));
  x.set_requires_grad();
  Tensor units = Tensor::zeros({n, n}, Dtype::F64);
  for (std::int64_t i = 0; i < n; ++i) {
    units.mutable_data<double>()[static_cast<std::size_t>(i * n + i)] = 1;
  }
  Tape tape;
  const Tensor y = net.features(x);
  return tape.backward(y, {.cotangent = units})[x];
}

double largest_singular_value(const Tensor& j) {
  const Tensor product = matmul(j, j, {.transpose_b = true});
  const LeafOperator apply = [&](std::span<const Tensor> v) {
    return std::vector<Tensor>{matmul(product, v[0])};
  };
  const std::array like{Tensor::zeros({j.dim(0)}, Dtype::F64)};
  return std::sqrt(top_eigenvalue(apply, like).value);
}

/// Loss after 80 steps of a net of 128 layers.
double trained(const MlpNet::Options& options, const Clusters& data, std::uint64_t seed) {
  MlpNet net(options);
  net.initialize(seed);
  const MlpTraining training{.lr = 0.01, .adagrad = true, .steps = 80};
  return last_loss(train(net, data, training, seed), training, 10);
}

}  // namespace

void rezero_isometry(Findings& findings, std::uint64_t seed) {
  const double one = largest_singular_value(jacobian(net_of("none", "rezero", 64), seed));
  const double pre = largest_singular_value(jacobian(net_of("pre", "none", 64), seed));
  const double post = largest_singular_value(jacobian(net_of("post", "none", 64), seed));
  const Tensor j = jacobian(net_of("none", "rezero", 64), seed);
  const Clusters data = make_clusters({.features = 64}, seed);
  const double rezero_loss = trained(net_of("none", "rezero", 128), data, seed);
  const double plain_loss = trained(net_of("", "none", 128), data, seed);
  const double post_loss = trained(net_of("post", "none", 128), data, seed);

  const Band isometric = below(1e-12);
  const Band learned = below(0.1);
  const Band stuck = above(1.5);
  findings.check("64 layers, largest singular value - 1", 0, std::abs(one - 1), isometric);
  findings.check("64 layers, |J|^2 / width - 1", 0,
                 std::abs(second_moment(j) * double(j.dim(0)) - 1), isometric);
  findings.check("128 layers trained, ReZero, loss", 0, rezero_loss, learned);
  findings.check("128 layers trained, plain, loss", std::log(10.0), plain_loss, stuck);
  findings.check("128 layers trained, post-LN, loss", std::nullopt, post_loss, stuck);
  findings.control("pre-LN, largest singular value - 1", std::abs(pre - 1), isometric);
  findings.control("post-LN, largest singular value - 1", std::abs(post - 1), isometric);
  findings.control("plain, loss", plain_loss, learned);
  findings.control("ReZero, loss", rezero_loss, stuck);
}

}  // namespace steady::examples::claims
