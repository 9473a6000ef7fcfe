#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/dynamic_erf.hpp>
#include <steadygrad/layers/norm/dynamic_tanh.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <steadygrad/layers/norm/squash_kernel.hpp>

#include "tests/layers/norm/kernel_testing.hpp"
#include "tests/layers/norm/norm_testing.hpp"

// DyT and Derf, and their kernel.

namespace steady {
namespace {

using namespace norm_testing;
using ::testing::ElementsAre;
using testing::nans;
using testing::on_every_target;
using testing::with_threads;

double exact(Squash f, double z) { return f == Squash::Tanh ? std::tanh(z) : std::erf(z); }
double exact_slope(Squash f, double z) {
  if (f == Squash::Erf) return 2 / std::sqrt(std::acos(-1.0)) * std::exp(-z * z);
  const double c = std::cosh(z);
  return 1 / (c * c);
}

/// f and f' of the numbers of x, by the forward and the backward of gain 1 and cotangents 1.
struct Curve {
  std::vector<float> value, slope;
};
Curve curve(Squash f, const std::vector<float>& x) {
  const auto n = std::ssize(x);
  const RowShape shape{1, n, n};
  Curve c{nans<float>(n), nans<float>(n)};
  const std::vector<float> ones(x.size(), 1.0F);
  auto workspace = nans<float>(squash_workspace(shape));
  squash_forward<float>(shape, {f}, x, {}, {}, c.value);
  squash_backward<float>(shape, {f}, x, ones, {}, {.dx = c.slope}, workspace);
  return c;
}

/// The argument carries one rounding of float, which the slope exp(-z^2) multiplies by 2 z^2.
TEST(SquashKernel, IsAFewUlpsFromTheCurveAtEveryArgument) {
  std::vector<float> x;
  for (double v = 1e-30; v < 1e3; v *= 1.003) {
    x.push_back(float(v));
    x.push_back(float(-v));
  }
  x.push_back(0.0F);
  for (const Squash f : {Squash::Tanh, Squash::Erf}) {
    on_every_target([&] {
      const Curve c = curve(f, x);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double z = double(x[i]), y = exact(f, z), s = exact_slope(f, z);
        EXPECT_NEAR(double(c.value[i]), y, 6e-7 * std::abs(y)) << z;
        EXPECT_NEAR(double(c.slope[i]), s, (1e-6 + 3e-7 * z * z) * s + 1e-37) << z;
      }
    });
  }
}

TEST(SquashKernel, PassesNanAndInfinityOn) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (const Squash f : {Squash::Tanh, Squash::Erf}) {
    const Curve c = curve(f, {inf, -inf, nan});
    EXPECT_EQ(c.value[0], 1.0F);
    EXPECT_EQ(c.value[1], -1.0F);
    EXPECT_TRUE(std::isnan(c.value[2]) && std::isnan(c.slope[2]));
    EXPECT_EQ(c.slope[0], 0.0F);
  }
}

TEST(SquashKernel, SumsScalarGradientsTheSameForAnyNumberOfThreads) {
  testing::Noise random(3);
  const RowShape shape{3000, 70, 70};
  const auto x = random.fill<float>(shape.elements()), dy = random.fill<float>(shape.elements());
  const auto gamma = random.fill<float>(70);
  double want_alpha = 0, want_shift = 0, size = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double d =
        double(dy[i]) * double(gamma[i % 70]) * exact_slope(Squash::Erf, 0.7 * double(x[i]) + 0.1);
    want_alpha += d * double(x[i]);
    want_shift += d;
    size += std::abs(d);
  }
  std::vector<float> first;
  with_threads([&](int threads) {
    std::vector<float> sums = nans<float>(2);
    auto workspace = nans<float>(squash_workspace(shape));
    squash_backward<float>(shape, {Squash::Erf, 0.7F, 0.1F}, x, dy, gamma,
                           {.dalpha = std::span(sums).first(1), .dshift = std::span(sums).last(1)},
                           workspace);
    EXPECT_NEAR(double(sums[0]), want_alpha, 1e-6 * size);
    EXPECT_NEAR(double(sums[1]), want_shift, 1e-6 * size);
    if (first.empty()) first = sums;
    EXPECT_EQ(sums, first) << threads;
  });
}

TEST(SquashKernel, WrongSizesThrowBeforeAnythingIsWritten) {
  std::vector<double> x(6, 1.0), y(6, 7.0), one(1), two(2);
  const RowShape shape{2, 3, 3};
  EXPECT_THROW(squash_forward<double>(shape, {}, x, two, {}, y), ShapeError);
  EXPECT_THROW(squash_forward<double>(shape, {}, x, {}, one, y), ShapeError);
  EXPECT_THROW(squash_forward<double>(shape, {}, two, {}, {}, y), ShapeError);
  std::vector<double> workspace(static_cast<std::size_t>(squash_workspace(shape)));
  EXPECT_THROW(squash_backward<double>(shape, {}, x, x, {}, {.dx = y, .dalpha = two}, workspace),
               ShapeError);
  EXPECT_THROW(squash_backward<double>(shape, {}, x, x, {}, {.dx = y}, one), ShapeError);
  EXPECT_EQ(y, std::vector<double>(6, 7.0));
}

TEST(DynamicTanh, IsTheEquation) {
  const Tensor x = Tensor::of({1, 2}, {1, -3}, Dtype::F64);
  const Tensor y = dynamic_tanh(x, {2}, leaf({1}, {0.5}), leaf({2}, {2, 3}), leaf({2}, {1, -1}));
  expect_values(y, {2 * std::tanh(0.5) + 1, 3 * std::tanh(-1.5) - 1}, 1e-15);
}

TEST(DynamicErf, IsTheEquation) {
  const Tensor x = Tensor::of({1, 2}, {1, -3}, Dtype::F64);
  const Tensor y = dynamic_erf(x, {2}, leaf({1}, {0.5}), leaf({1}, {0.25}), leaf({2}, {2, 3}),
                               leaf({2}, {1, -1}));
  expect_values(y, {2 * std::erf(0.75) + 1, 3 * std::erf(-1.25) - 1}, 1e-15);
}

TEST(SquashModules, NameTheirParametersAndKeepDecayOffAlpha) {
  const auto parameters = [](const char* spec) {
    std::vector<std::string> names;
    for (const Parameter& p : make_norm(NormSpec::parse(spec), 3)->parameters()) {
      names.push_back(p.name + ":" + std::string(to_string(p.role)));
    }
    return names;
  };
  EXPECT_THAT(parameters("dyt"),
              ElementsAre("alpha:norm scale", "weight:norm scale", "bias:norm shift"));
  EXPECT_THAT(parameters("derf"), ElementsAre("alpha:norm scale", "shift:norm shift",
                                              "weight:norm scale", "bias:norm shift"));
  EXPECT_THAT(parameters("dyt(bias=false)"), ElementsAre("alpha:norm scale", "weight:norm scale"));
  EXPECT_THAT(parameters("derf(affine=false)"),
              ElementsAre("alpha:norm scale", "shift:norm shift"));
}

TEST(SquashModules, StartAtTheirOptions) {
  const auto dyt = make_norm(NormSpec::parse("dyt(alpha=0.8)"), 2);
  dyt->initialize(3);
  const Tensor x = Tensor::of({1, 2}, {1, -3});
  expect_values((*dyt)(x), {std::tanh(0.8), std::tanh(-2.4)}, 1e-6);
  EXPECT_EQ(dyt->describe(), "DynamicTanh([2], alpha=0.8)");
  const auto derf = make_norm(NormSpec::parse("derf(shift=0.5, bias=false)"), 2);
  expect_values((*derf)(x), {std::erf(1.0), std::erf(-1.0)}, 1e-6);
  EXPECT_EQ(derf->describe(), "DynamicErf([2], alpha=0.5, shift=0.5, bias=false)");
}

TEST(SquashModules, RefuseBadOptionsAndParameters) {
  EXPECT_THROW(DynamicTanh({}), ShapeError);
  EXPECT_THROW(DynamicTanh({.normalized_shape = {2}, .alpha = std::nan("")}), Error);
  EXPECT_THROW(DynamicErf({.normalized_shape = {0}}), ShapeError);
  EXPECT_THROW(DynamicErf({.normalized_shape = {2}, .shift = INFINITY}), Error);
  const Tensor x = Tensor::ones({2, 3});
  EXPECT_THROW((void)dynamic_tanh(x, {3}, {}), ShapeError);
  EXPECT_THROW((void)dynamic_tanh(x, {3}, Tensor::ones({})), ShapeError);
  EXPECT_THROW((void)dynamic_tanh(x, {3}, Tensor::ones({3})), ShapeError);
  EXPECT_THROW((void)dynamic_tanh(x, {3}, Tensor::ones({1}), Tensor::ones({1})), ShapeError);
  EXPECT_THROW((void)dynamic_erf(x, {3}, Tensor::ones({1}), Tensor::ones({3})), ShapeError);
}

TEST(SquashModules, MeasureHowMuchIsSaturated) {
  std::map<std::string, double> measured;
  make_norm(NormSpec::parse("dyt"), 4)
      ->measure(Tensor::of({1, 4}, {0, 1, 20, -20}),
                [&](std::string_view name, double value) { measured[std::string(name)] = value; });
  EXPECT_EQ(measured.at("alpha"), 0.5);
  EXPECT_EQ(measured.at("saturated"), 0.5);
  EXPECT_NEAR(measured.at("normalized_mean"), std::tanh(0.5) / 4, 1e-6);
}

}  // namespace
}  // namespace steady
