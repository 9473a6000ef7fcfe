// Second derivatives of whole models: exact products with the Hessian against central differences
// of gradients, for the CNN and the Transformer of the reference data, whole and layer by layer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <steadygrad/core/curvature.hpp>
#include <steadygrad/core/ops/loss.hpp>
#include <steadygrad/core/random.hpp>
#include <string>
#include <vector>

#include "tests/layers/golden_models.hpp"

namespace steady {
namespace {

using namespace testing_support;

constexpr double Tolerance = 1e-6;  // of the largest element of the product, or of 1

/// The parameters below one name, and a direction for them.
struct Part {
  std::vector<Tensor> leaves;
  std::vector<Tensor> direction;
};

/// Random directions of standard normal elements.
Tensor direction_of(const Parameter& p) {
  Tensor v = Tensor::empty(p.value.shape(), Dtype::F64);
  Random random(11, "direction of " + p.name);
  for (double& value : v.mutable_data<double>()) value = random.normal();
  return v;
}

/// All parameters under "", and those of each layer (what stands before the last dot of a name).
std::map<std::string, Part> parts_of(const Module& model) {
  std::map<std::string, Part> parts;
  for (const Parameter& p : model.parameters()) {
    const Tensor v = direction_of(p);
    for (const std::string& key : {std::string(), p.name.substr(0, p.name.rfind('.'))}) {
      parts[key].leaves.push_back(p.value);
      parts[key].direction.push_back(v);
    }
  }
  return parts;
}

double largest(const Tensor& t) {
  double result = 0;
  for (const double v : t.data<double>()) result = std::max(result, std::abs(v));
  return result;
}

/// H v against differences, everywhere; `least`: so large is some product, so that zeros would
/// fail.
void expect_products(const LossFunction& loss, const Module& model, double least) {
  for (const auto& [name, part] : parts_of(model)) {
    SCOPED_TRACE(name.empty() ? "whole model" : name);
    const std::vector<Tensor> exact = hessian_vector_product(loss, part.leaves, part.direction);
    const std::vector<Tensor> differences =
        hessian_vector_difference(loss, part.leaves, part.direction, 1e-5);
    double most = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      most = std::max(most, largest(exact[i]));
      expect_close(exact[i], differences[i], Tolerance);
    }
    if (name.empty()) {
      EXPECT_GT(most, least);
    }
  }
}

/// The CNN of the reference data in training mode, with its first batch.
struct CnnProblem {
  GoldenCase cnn = Golden("models.h5").group("/cnn");
  GoldenCnn model{{}};
  Tensor x = reshape(step_of(cnn.tensor("in/x"), 0), {8, 8, 8, 1});
  Tensor target = step_of(cnn.tensor("in/target"), 0);
  LossFunction loss = [this] { return cross_entropy(model(x), target); };

  CnnProblem() {
    model.to(Dtype::F64);
    model.load(read_cnn_state(cnn, "state"));
  }
};

/// The GPT of the reference data, with two sequences of its first batch.
struct GptProblem {
  GoldenCase gpt = Golden("models.h5").group("/gpt");
  Decoder model{gpt_options(gpt)};
  Tensor ids = slice(tokens_of(gpt, 0, false), 0, 0, 2);
  Tensor targets = slice(tokens_of(gpt, 0, true), 0, 0, 2);
  LossFunction loss = [this] { return model.loss(ids, targets); };

  GptProblem() {
    model.to(Dtype::F64);
    model.load(read_state(gpt, "state"));
  }
};

TEST(GoldenCurvature, ProductsForTheCnnAgreeWithDifferencesOfGradients) {
  CnnProblem p;
  expect_products(p.loss, p.model, 0.1);
}

TEST(GoldenCurvature, ProductsForTheTransformerAgreeWithDifferencesOfGradients) {
  GptProblem p;
  expect_products(p.loss, p.model, 0.1);
}

TEST(GoldenCurvature, ProductsAreSymmetricForBothModels) {
  const auto check = [](const LossFunction& loss, const Module& model) {
    const Part whole = parts_of(model).at("");
    std::vector<Tensor> other;
    for (const Tensor& v : whole.direction) other.push_back(v * v);  // another direction
    const auto inner = [](const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
      double sum = 0;
      for (std::size_t i = 0; i < a.size(); ++i) {
        const auto x = a[i].data<double>(), y = b[i].data<double>();
        for (std::size_t k = 0; k < x.size(); ++k) sum += x[k] * y[k];
      }
      return sum;
    };
    const double left = inner(other, hessian_vector_product(loss, whole.leaves, whole.direction));
    const double right = inner(whole.direction, hessian_vector_product(loss, whole.leaves, other));
    EXPECT_NEAR(left, right, 1e-10 * std::abs(left));
  };
  CnnProblem cnn;
  check(cnn.loss, cnn.model);
  GptProblem gpt;
  check(gpt.loss, gpt.model);
}

/// The Hessian of a layer is a block of the whole one: its largest eigenvalue cannot be larger.
TEST(GoldenCurvature, NoLayerIsSharperThanTheModel) {
  CnnProblem p;
  const std::map<std::string, Part> parts = parts_of(p.model);
  const EigenvalueOptions options{.iterations = 60, .tolerance = 1e-8};
  const Eigenvalue whole = top_eigenvalue(p.loss, parts.at("").leaves, options);
  EXPECT_TRUE(whole.converged) << "residual " << whole.residual;
  EXPECT_GT(whole.value, 0);
  double sharpest = 0;
  for (const auto& [name, part] : parts) {
    if (name.empty()) continue;
    const Eigenvalue layer = top_eigenvalue(p.loss, part.leaves, options);
    EXPECT_LE(layer.value, whole.value + whole.residual) << name;
    sharpest = std::max(sharpest, layer.value);
  }
  EXPECT_GT(sharpest, 0.1 * whole.value);
}

}  // namespace
}  // namespace steady
