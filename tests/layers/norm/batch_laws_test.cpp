// What depending on the batch costs, in exact laws: padding, noise, tiny batches; and what it buys:
// scale and place of the input do not matter.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/loss.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/layers/norm/layer_norm.hpp>
#include <steadygrad/layers/norm/scaling.hpp>

#include "tests/layers/norm/norm_testing.hpp"

namespace steady {
namespace {

using namespace norm_testing;

Tensor bn(const Tensor& x) { return batch_norm(x, {}, {}, 0).y; }
Tensor ln(const Tensor& x) { return layer_norm(x, {x.dim(-1)}, {}, {}, 0); }

/// Columns of mean 0.
Tensor centred(const Shape& shape, const std::string& name) {
  const Tensor x = noise(shape, name);
  return x - mean(x, 0, true);
}

TEST(BatchLaws, PaddingWithZerosScalesTheRealRows) {
  for (const std::int64_t rows : {3, 12, 60}) {
    const Tensor x = centred({rows, 5}, "rows");
    for (const std::int64_t padded : {rows / 3, rows, 3 * rows}) {
      const double p = static_cast<double>(padded) / static_cast<double>(rows + padded);
      const Tensor all = concat({x, Tensor::zeros({padded, 5}, Dtype::F64)}, 0);
      expect_values(slice(bn(all), 0, 0, rows), values(bn(x) / std::sqrt(1 - p)), 1e-13);
      EXPECT_TRUE(same_bits(slice(ln(all + 1.0 * all), 0, 0, rows), ln(x + 1.0 * x)));
    }
  }
  EXPECT_NEAR(1 / std::sqrt(1 - 0.25), 1.1547, 1e-4);
  EXPECT_NEAR(1 / std::sqrt(1 - 0.5), 1.4142, 1e-4);
  EXPECT_NEAR(1 / std::sqrt(1 - 0.75), 2.0, 1e-12);
}

/// Deviation of the outputs of fixed samples over random companions, RMS over the samples.
double noise_of(const std::function<Tensor(const Tensor&)>& norm, std::int64_t batch) {
  constexpr int Draws = 400;
  constexpr std::int64_t Features = 64;
  const Tensor sample = noise({1, Features}, "sample");
  Tensor total = Tensor::zeros({1, Features}, Dtype::F64), squares = total;
  for (int i = 0; i < Draws; ++i) {
    const Tensor others = noise({batch - 1, Features}, "companions " + std::to_string(i));
    const Tensor y = slice(norm(concat({sample, others}, 0)), 0, 0, 1);
    total = total + y;
    squares = squares + square(y);
  }
  const Tensor variance = squares / Draws - square(total / Draws);
  return std::sqrt(std::max(0.0, mean(variance).item()));
}

TEST(BatchLaws, TheOutputOfASampleVariesAsTheInverseRootOfTheBatch) {
  // Per feature the variance is about (1 + x^2 / 2) / B: 1.22 / sqrt(B) for x of variance 1.
  for (const std::int64_t batch : {16, 64}) {
    const double scaled = noise_of(bn, batch) * std::sqrt(static_cast<double>(batch));
    EXPECT_GT(scaled, 1.1) << batch;
    EXPECT_LT(scaled, 1.32) << batch;
  }
  EXPECT_LT(noise_of(ln, 16), 1e-7);  // a root of rounding
}

TEST(BatchLaws, TwoRowsBecomePlusAndMinusOneWhateverTheyHold) {
  for (int i = 0; i < 20; ++i) {
    const Tensor x = noise({2, 33}, "pair " + std::to_string(i), 5, 10);
    const std::vector<double> v = values(x), y = values(bn(x));
    for (std::size_t c = 0; c < 33; ++c) {
      EXPECT_NEAR(y[c], v[c] > v[33 + c] ? 1 : -1, 1e-13);
      EXPECT_NEAR(y[33 + c], -y[c], 1e-13);
    }
  }
}

TEST(BatchLaws, OneValueHasNoStatisticsAndIsRefused) {
  // Algebra gives 0 for every input: nothing would be left of it.
  const Tensor x = noise({1, 4}, "one");
  EXPECT_THROW((void)batch_norm(x), ShapeError);
}

TEST(BatchLaws, LayerNormOfATokenIsItsOwnMatter) {
  const Tensor x = noise({7, 16}, "tokens");
  const Tensor alone = ln(slice(x, 0, 3, 4));
  EXPECT_TRUE(same_bits(slice(ln(x), 0, 3, 4), alone));
  EXPECT_TRUE(same_bits(slice(ln(concat({x, x * 1e6}, 0)), 0, 3, 4), alone));
}

/// 20 features with scales from 1e-2 to 1e2, ten deviations away from 0.
Tensor raw_features(std::int64_t rows) {
  Tensor x = noise({rows, 20}, "features");
  std::size_t i = 0;
  for (double& v : x.mutable_data<double>()) {
    const double scale = std::pow(10.0, -2 + 4 * static_cast<double>(i++ % 20) / 19);
    v = scale * (v + 10);
  }
  return x;
}

template <class Scale>
Tensor scaled(const Tensor& x) {
  Scale scale({.features = x.dim(-1)});
  scale.fit(x);
  return scale(x);
}

TEST(BatchLaws, BatchNormOfTheInputRemovesWhatScalingChanges) {
  const Tensor x = raw_features(200);
  const Tensor reference = bn(x);
  expect_values(bn(scaled<MinMaxScale>(x)), values(reference), 1e-12);
  expect_values(bn(scaled<Standardize>(x)), values(reference), 1e-12);
  expect_values(bn(scaled<RobustScale>(x)), values(reference), 1e-12);
  expect_values(scaled<Standardize>(x), values(reference), 1e-12);  // it is the same thing
}

/// Loss after 60 steps of plain gradient descent on five classes.
double trained(const Tensor& x, bool norm, double rate) {
  Linear teacher({.in = 20, .out = 5}), student({.in = 20, .out = 5});
  for (Linear* layer : {&teacher, &student}) {
    layer->initialize(layer == &teacher ? 1 : 2);
    layer->to(Dtype::F64);
  }
  const Tensor target = argmax(teacher(bn(raw_features(x.dim(0)))));
  double last = 0;
  for (int step = 0; step < 60; ++step) {
    Tape tape;
    const Tensor loss = cross_entropy(student(norm ? bn(x) : x), target);
    const Gradients g = tape.backward(loss);
    last = loss.item();
    for (Tensor* p : {&student.weight, &student.bias}) {
      const Tensor next = p->detach() - g[*p] * rate;
      p->copy_from(next);
    }
  }
  return last;
}

TEST(BatchLaws, TrainingBehindItIsTheSameForEveryScaling) {
  const Tensor x = raw_features(200);
  const Tensor range = scaled<MinMaxScale>(x), unit = scaled<Standardize>(x);
  const double reference = trained(x, true, 0.5);
  EXPECT_NEAR(trained(range, true, 0.5), reference, 1e-9);
  EXPECT_NEAR(trained(unit, true, 0.5), reference, 1e-9);
  // Without it scaling decides: the control.
  EXPECT_GT(trained(range, false, 0.5), 1.2 * trained(unit, false, 0.5));
}

}  // namespace
}  // namespace steady
