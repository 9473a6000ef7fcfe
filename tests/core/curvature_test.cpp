#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <steadygrad/steadygrad.hpp>
#include <vector>

#include "tests/support/message_of.hpp"

namespace steady {
namespace {

constexpr std::int64_t N = 24;

/// An orthogonal matrix: the reflection I - 2 u u^T / |u|^2 of a random u.
Tensor reflection() {
  Random random(3, "u");
  std::vector<double> u(N);
  double squares = 0;
  for (double& value : u) {
    value = random.normal();
    squares += value * value;
  }
  Tensor q = Tensor::zeros({N, N}, Dtype::F64);
  const auto out = q.mutable_data<double>("reflection");
  for (std::size_t i = 0; i < N; ++i) {
    for (std::size_t j = 0; j < N; ++j) {
      out[i * N + j] = (i == j ? 1.0 : 0.0) - 2 * u[i] * u[j] / squares;
    }
  }
  return q;
}

/// x^T Q diag(spectrum) Q x / 2: its Hessian has this spectrum.
LossFunction quadratic(const Tensor& x, const std::vector<double>& spectrum) {
  Tensor d = Tensor::empty({N}, Dtype::F64);
  std::ranges::copy(spectrum, d.mutable_data<double>("quadratic").begin());
  return [x, d, q = reflection()] {
    const Tensor y = matmul(q, x);
    return mul(sum(mul(mul(y, y), d)), 0.5);
  };
}

std::vector<double> spectrum_from(double largest, double smallest) {
  std::vector<double> spectrum(N);
  for (std::size_t i = 0; i < N; ++i) {
    spectrum[i] = largest + (smallest - largest) * static_cast<double>(i) / (N - 1);
  }
  return spectrum;
}

Tensor point() {
  Tensor x = Tensor::empty({N}, Dtype::F64);
  Random random(4, "x");
  for (double& value : x.mutable_data<double>("point")) value = random.normal();
  x.set_requires_grad();
  return x;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.data<double>().size(); ++i) {
    worst = std::max(worst, std::abs(a.data<double>()[i] - b.data<double>()[i]));
  }
  return worst;
}

TEST(TopEigenvalue, IsThatOfAQuadraticWithAKnownSpectrum) {
  const Tensor x = point();
  for (const auto& [largest, smallest] :
       {std::pair{7.0, 1.0}, {7.0, -20.0}, {-1.0, -3.0}, {1e-6, 0.0}}) {
    const Eigenvalue top = top_eigenvalue(quadratic(x, spectrum_from(largest, smallest)), {{x}},
                                          {.iterations = 40, .tolerance = 1e-10});
    EXPECT_NEAR(top.value, largest, 1e-8 * std::abs(largest));
    EXPECT_TRUE(top.converged);
    EXPECT_LE(top.iterations, N);
  }
}

TEST(TopEigenvalue, HasAnEigenvalueWithinItsResidualBeforeConvergence) {
  const Tensor x = point();
  for (const int iterations : {2, 4, 8}) {
    const Eigenvalue top = top_eigenvalue(quadratic(x, spectrum_from(5, 0)), {{x}},
                                          {.iterations = iterations, .tolerance = 1e-12});
    EXPECT_FALSE(top.converged);
    double nearest = 5;
    for (const double value : spectrum_from(5, 0)) {
      nearest = std::min(nearest, std::abs(top.value - value));
    }
    EXPECT_LE(nearest, top.residual + 1e-12);
    EXPECT_LE(top.value, 5 + 1e-12);  // Ritz values stay inside the spectrum
    EXPECT_GT(top.residual, 0);
  }
}

TEST(TopEigenvalue, RepeatsBitForBitAndDependsOnTheSeedBelowTheToleranceOnly) {
  const Tensor x = point();
  const LossFunction loss = quadratic(x, spectrum_from(3, 1));
  const double first = top_eigenvalue(loss, {{x}}, {.tolerance = 1e-10}).value;
  EXPECT_EQ(first, top_eigenvalue(loss, {{x}}, {.tolerance = 1e-10}).value);
  EXPECT_NEAR(first, top_eigenvalue(loss, {{x}}, {.tolerance = 1e-10, .seed = 9}).value, 1e-9);
}

TEST(TopEigenvalue, RefusesOptionsAndProductsItCannotUse) {
  const Tensor x = point();
  EXPECT_THROW((void)top_eigenvalue(quadratic(x, spectrum_from(3, 1)), {}), Error);
  EXPECT_THROW((void)top_eigenvalue(quadratic(x, spectrum_from(3, 1)), {{x}}, {.iterations = 0}),
               Error);
  EXPECT_THROW((void)top_eigenvalue([&] { return sum(log(mul(x, 0.0))); }, {{x}}), NonFiniteError);
}

struct Net : Layer {
  struct Options {};
  explicit Net(Options options) : o(options) {}
  Options o;
  Conv2d& conv = add<Conv2d>("conv", {.in = 2, .out = 4, .padding = 1});
  Layer& norm = add_norm("norm", NormSpec::parse("batch"), 4);
  Layer& rms = add_norm("rms", NormSpec::parse("rms"), 4);
  Linear& head = add<Linear>("head", {.in = 4, .out = 3});
  Tensor forward(const Tensor& x) override {
    return head(global_avg_pool2d(silu(rms(norm(conv(x))))));
  }
};

struct Problem {
  Net net{{}};
  Tensor x = Tensor::empty({3, 5, 5, 2}, Dtype::F64);
  Tensor y = Tensor::of({3}, {0, 2, 1}, Dtype::I64);
  std::vector<Tensor> leaves;
  std::vector<Tensor> direction;

  Problem() {
    net.initialize(1);
    net.to(Dtype::F64);
    Random random(5, "problem");
    for (double& value : x.mutable_data<double>("x")) value = random.normal();
    for (const Parameter& p : net.parameters()) {
      leaves.push_back(p.value);
      direction.push_back(Tensor::empty(p.value.shape(), Dtype::F64));
      for (double& value : direction.back().mutable_data<double>("v")) value = random.normal();
    }
  }
  Tensor loss() { return cross_entropy(net(x), y); }
};

TEST(HessianVectorProduct, AgreesWithDifferencesOfGradientsForACnn) {
  Problem p;
  const LossFunction loss = [&] { return p.loss(); };
  const std::vector<Tensor> exact = hessian_vector_product(loss, p.leaves, p.direction);
  const std::vector<Tensor> differences =
      hessian_vector_difference(loss, p.leaves, p.direction, 1e-5);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    EXPECT_LE(largest_difference(exact[i], differences[i]), 1e-6) << i;
  }
}

TEST(HessianVectorProduct, IsSymmetric) {
  Problem p;
  const LossFunction loss = [&] { return p.loss(); };
  const std::vector<Tensor> hv = hessian_vector_product(loss, p.leaves, p.direction);
  const std::vector<Tensor> hhv = hessian_vector_product(loss, p.leaves, hv);
  double left = 0;   // <H v, H v>
  double right = 0;  // <v, H (H v)>
  for (std::size_t i = 0; i < hv.size(); ++i) {
    left += sum(mul(hv[i], hv[i])).item();
    right += sum(mul(p.direction[i], hhv[i])).item();
  }
  EXPECT_NEAR(left, right, 1e-10 * left);
}

TEST(HessianVectorProduct, LeavesParametersAndRunningStatisticsAsTheyWere) {
  Problem p;
  std::vector<std::vector<double>> before;
  const auto numbers = [&] {
    std::vector<std::vector<double>> all;
    for (const NamedTensor& t : p.net.state()) {
      if (t.value.dtype() != Dtype::F64) continue;
      all.emplace_back(t.value.data<double>().begin(), t.value.data<double>().end());
    }
    return all;
  };
  before = numbers();
  const LossFunction loss = [&] { return p.loss(); };
  (void)hessian_vector_product(loss, p.leaves, p.direction);
  (void)hessian_vector_difference(loss, p.leaves, p.direction);
  EXPECT_EQ(before, numbers());
}

TEST(HessianVectorProduct, GivesZerosForALeafThatTheLossDoesNotReach) {
  const Tensor x = point();
  Tensor other = Tensor::zeros({2}, Dtype::F64);
  other.set_requires_grad();
  const Tensor v = Tensor::full({N}, 1.0, Dtype::F64);
  const Tensor w = Tensor::full({2}, 1.0, Dtype::F64);
  const auto product =
      hessian_vector_product(quadratic(x, spectrum_from(2, 2)), {{x, other}}, {{v, w}});
  EXPECT_LE(largest_difference(product[0], mul(v, 2.0)), 1e-12);
  EXPECT_LE(largest_difference(product[1], mul(w, 0.0)), 0);
}

TEST(HessianVectorProduct, OfALinearLossIsZero) {
  const Tensor x = point();
  const Tensor v = Tensor::full({N}, 1.0, Dtype::F64);
  const auto product = hessian_vector_product([&] { return sum(x); }, {{x}}, {{v}});
  EXPECT_LE(largest_difference(product[0], mul(v, 0.0)), 0);
}

TEST(AlongGradient, OfAQuadraticIsKnownInClosedForm) {
  // f = c x^2 / 2: the gradient at x - rate c x is (1 - rate c) c x.
  Tensor x = Tensor::of({1}, {3.0}, Dtype::F64);
  x.set_requires_grad();
  const std::vector<double> rates{0.1, 0.5, 1.0};
  const auto points = along_gradient([&] { return mul(sum(mul(x, x)), 2.0); }, {{x}}, rates);
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const double at = 3.0 * (1 - 4 * rates[i]);
    EXPECT_NEAR(points[i].loss, 2 * at * at, 1e-12);
    EXPECT_NEAR(points[i].gradient_change, 4 * rates[i], 1e-12);
    EXPECT_NEAR(points[i].smoothness, 4, 1e-12);
  }
  EXPECT_EQ(x.item(), 3.0);
  EXPECT_THROW((void)along_gradient([&] { return sum(mul(x, 0.0)); }, {{x}}, rates), Error);
  EXPECT_THROW((void)along_gradient([&] { return sum(x); }, {{x}}, {{-1.0}}), Error);
}

TEST(HessianVectorProduct, RefusesAVectorThatDoesNotFitByNamingTheLeaf) {
  const Tensor x = point();
  const Tensor v = Tensor::zeros({3}, Dtype::F64);
  EXPECT_EQ(testing_support::message_of([&] {
              (void)hessian_vector_product(quadratic(x, spectrum_from(2, 1)), {{x}}, {{v}});
            }),
            "hessian_vector_product: a vector has its leaf's shape and dtype; got f64 [3] for leaf "
            "0 f64 [24]");
}

}  // namespace
}  // namespace steady
