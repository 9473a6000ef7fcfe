#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/l2_normalize.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <steadygrad/layers/norm/partial_rms_norm.hpp>
#include <steadygrad/layers/norm/rms_norm.hpp>
#include <steadygrad/layers/norm/row_scale_kernel.hpp>
#include <steadygrad/layers/norm/scale_norm.hpp>
#include <steadygrad/layers/norm/simple_rms_norm.hpp>

#include "tests/layers/norm/kernel_testing.hpp"
#include "tests/layers/norm/norm_testing.hpp"

// The norms that multiply every row by one number, and their kernel.

namespace steady {
namespace {

using namespace norm_testing;
using testing::for_each_row_sweep;
using ::testing::HasSubstr;
using testing::max_error;
using testing::nans;
using testing::on_every_target;
using testing::with_threads;

template <class T>
struct Problem {
  RowShape shape;
  RowScaleRule rule;
  std::vector<T> x, dy, gamma;
};

template <class T>
Problem<T> problem(const RowShape& shape, const RowScaleRule& rule, double scale = 1,
                   double offset = 0) {
  testing::Noise random(5);
  return {shape, rule, random.fill<T>(shape.elements(), scale, offset),
          random.fill<T>(shape.elements()), random.fill<T>(shape.affine)};
}

template <class T>
struct Result {
  std::vector<T> y, stats, dx, dgamma;
  bool operator==(const Result&) const = default;
};

template <class T>
Result<T> run(const Problem<T>& p) {
  const RowShape& s = p.shape;
  Result<T> r{nans<T>(s.elements()), nans<T>(2 * s.rows), nans<T>(s.elements()), nans<T>(s.affine)};
  auto workspace = nans<T>(row_scale_workspace(s));
  row_scale_forward<T>(s, p.rule, p.x, p.gamma, r.y, r.stats);
  row_scale_backward<T>(s, p.rule.counted, p.x, p.dy, p.gamma, r.stats, r.dx, r.dgamma, workspace);
  return r;
}

/// The formulas in long double, and the size of the terms each value is made of.
struct Reference {
  std::vector<double> y, dx, dgamma, y_scale, dx_scale, dgamma_scale;
};

template <class T>
Reference reference(const Problem<T>& p) {
  using Real = long double;
  const auto width = static_cast<std::size_t>(p.shape.width);
  const auto affine = static_cast<std::size_t>(p.shape.affine);
  const auto counted = static_cast<std::size_t>(p.rule.counted);
  Reference f;
  f.y = f.dx = f.y_scale = f.dx_scale = std::vector<double>(p.x.size());
  f.dgamma_scale = std::vector<double>(affine);
  std::vector<Real> dgamma(affine);
  for (std::size_t at = 0; at < p.x.size(); at += width) {
    Real q = 0, pull = 0, size = 0;
    for (std::size_t i = 0; i < counted; ++i) q += static_cast<Real>(p.x[at + i]) * p.x[at + i];
    const Real n = static_cast<Real>(counted), eps = static_cast<Real>(p.rule.eps);
    const bool clamped = !p.rule.mean && std::sqrt(q) < eps;
    const Real s = p.rule.mean ? 1 / std::sqrt(q / n + eps) : 1 / std::max(std::sqrt(q), eps);
    const Real l = p.rule.mean ? 1 / n : clamped ? 0 : 1;
    for (std::size_t i = 0; i < width; ++i) {
      const Real term = l * p.dy[at + i] * p.gamma[i % affine] * p.x[at + i] * s;
      pull += term;
      size += std::abs(term);
    }
    for (std::size_t i = 0; i < width; ++i) {
      const Real xhat = p.x[at + i] * s, u = p.dy[at + i], w = u * p.gamma[i % affine];
      const Real k = i < counted ? 1 : 0;
      f.y[at + i] = static_cast<double>(xhat * p.gamma[i % affine]);
      f.y_scale[at + i] = static_cast<double>(std::abs(xhat * p.gamma[i % affine]));
      f.dx[at + i] = static_cast<double>(s * (w - k * xhat * pull));
      f.dx_scale[at + i] = static_cast<double>(s * (std::abs(w) + k * std::abs(xhat) * size));
      dgamma[i % affine] += u * xhat;
      f.dgamma_scale[i % affine] += static_cast<double>(std::abs(u * xhat));
    }
  }
  f.dgamma.assign(dgamma.begin(), dgamma.end());
  return f;
}

// A handful of roundings per value.
template <class T>
constexpr double Ulps = 8 * static_cast<double>(std::numeric_limits<T>::epsilon());

template <class T>
void expect_close(const Problem<T>& p) {
  const Result<T> r = run(p);
  const Reference f = reference(p);
  EXPECT_LE(max_error(r.y, f.y, f.y_scale), Ulps<T>);
  EXPECT_LE(max_error(r.dx, f.dx, f.dx_scale), Ulps<T>);
  EXPECT_LE(max_error(r.dgamma, f.dgamma, f.dgamma_scale), Ulps<T>);
}

template <class T>
class RowScaleKernel : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(RowScaleKernel, Types);

TYPED_TEST(RowScaleKernel, IsAFewUlpsFromTheFormulaForEveryShapeOffsetScaleAndRule) {
  for_each_row_sweep<TypeParam>([](RowShape shape, double offset, double scale) {
    if (shape.elements() > 200000) return;
    const std::int64_t part = (shape.width + 2) / 3;
    for (const RowScaleRule& rule :
         {RowScaleRule{part, true, 1e-6}, RowScaleRule{shape.width, false, 1e-5}}) {
      SCOPED_TRACE(rule.mean);
      shape.affine = rule.mean ? shape.width : 1;
      const auto p = problem<TypeParam>(shape, rule, scale, offset);
      on_every_target([&] { expect_close(p); });
    }
  });
}

TYPED_TEST(RowScaleKernel, GivesTheSameBitsForAnyNumberOfThreads) {
  for (const RowShape& shape : {RowShape{700, 130, 130}, RowShape{9, 40000, 1}}) {
    const auto p = problem<TypeParam>(shape, {shape.width / 2, true, 1e-6});
    const Result<TypeParam> once = run(p);
    with_threads([&](int threads) { EXPECT_TRUE(run(p) == once) << threads; });
  }
}

TYPED_TEST(RowScaleKernel, PassesNanOnWithinItsRowOnly) {
  for (const bool mean : {false, true}) {
    auto p = problem<TypeParam>({3, 20, 20}, {20, mean, 1e-6});
    p.x[25] = std::numeric_limits<TypeParam>::quiet_NaN();
    const Result<TypeParam> r = run(p);
    for (std::size_t i = 0; i < 60; ++i) {
      EXPECT_EQ(std::isnan(r.y[i]), i / 20 == 1) << i;
      EXPECT_EQ(std::isnan(r.dx[i]), i / 20 == 1) << i;
    }
  }
}

TEST(RowScaleErrors, WrongSizesThrowBeforeAnythingIsWritten) {
  std::vector<double> x(6, 1.0), y(6, 7.0);
  const RowShape shape{2, 3, 3};
  const auto forward = [&](const RowScaleRule& rule, std::span<const double> in,
                           std::span<const double> gamma) {
    row_scale_forward<double>(shape, rule, in, gamma, y, {});
  };
  EXPECT_THROW(forward({0, true, 0}, x, {}), ShapeError);
  EXPECT_THROW(forward({4, true, 0}, x, {}), ShapeError);
  EXPECT_THROW(forward({3, true, 0}, std::span(x).first(5), {}), ShapeError);
  EXPECT_THROW(forward({3, true, 0}, x, std::span<const double>(x).first(2)), ShapeError);
  EXPECT_EQ(y, std::vector<double>(6, 7.0));
}

TEST(RowScaleKernelCases, SumsSquaresThatFloatCannotHold) {
  for (const float size : {1e-25F, 1e25F}) {
    std::vector<float> x{3 * size, -4 * size}, y(2);
    row_scale_forward<float>({1, 2, 2}, {2, false, 0}, x, {}, y, {});
    EXPECT_NEAR(y[0], 0.6, 1e-6) << size;
    EXPECT_NEAR(y[1], -0.8, 1e-6) << size;
  }
}

TEST(PartialRmsNorm, MeasuresTheFirstElementsAndDividesAll) {
  const Tensor x = Tensor::of({1, 4}, {3, 4, 100, -7}, Dtype::F64);
  const double rms = std::sqrt(12.5);  // of 3 and 4
  expect_values(partial_rms_norm(x, {4}, {}, 0.5, 0), {3 / rms, 4 / rms, 100 / rms, -7 / rms});
  const Tensor w = Tensor::of({4}, {1, 2, 3, 4}, Dtype::F64);
  expect_values(partial_rms_norm(x, {4}, w, 0.5, 0), {3 / rms, 8 / rms, 300 / rms, -28 / rms});
}

TEST(PartialRmsNorm, CountsUpwards) {
  EXPECT_EQ(partial_rms_count(0.0625, 512), 32);
  EXPECT_EQ(partial_rms_count(0.0625, 100), 7);
  EXPECT_EQ(partial_rms_count(0.07, 100), 7);  // 0.07 * 100 > 7 in floating point
  EXPECT_EQ(partial_rms_count(0.07, 101), 8);
  EXPECT_EQ(partial_rms_count(1e-9, 3), 1);
  EXPECT_EQ(partial_rms_count(1, 3), 3);
}

TEST(PartialRmsNorm, OfAllElementsIsRmsNorm) {
  const Tensor x = noise({5, 33}, "x"), w = noise({33}, "w");
  expect_values(partial_rms_norm(x, {33}, w, 1), values(rms_norm(x, {33}, w)), 1e-15);
}

TEST(SimpleRmsNorm, DividesByTheLengthOverTheRootOfTheWidth) {
  const Tensor x = Tensor::of({1, 4}, {1, -2, 4, 2}, Dtype::F64);  // length 5
  expect_values(simple_rms_norm(x, {4}, 0), {0.4, -0.8, 1.6, 0.8}, 1e-15);
  EXPECT_TRUE(make_norm(NormSpec::parse("srms"), 4)->parameters().empty());
}

TEST(ScaleNorm, StartsWithSecondMomentOne) {
  ScaleNorm norm({.normalized_shape = {4}});
  const Tensor x = Tensor::of({1, 4}, {1, -2, 4, 2});
  expect_values(norm(x), {0.4, -0.8, 1.6, 0.8}, 1e-6);
  ASSERT_EQ(norm.parameters().size(), 1U);
  EXPECT_EQ(norm.parameters()[0].name, "g");
  EXPECT_EQ(norm.parameters()[0].role, Role::NormScale);
  EXPECT_EQ(norm.g.shape(), Shape{});
  EXPECT_EQ(norm.g.item(), 2.0);
}

TEST(ScaleNorm, TakesAScalarOnly) {
  const Tensor x = Tensor::ones({2, 3});
  EXPECT_THROW((void)scale_norm(x, {3}, Tensor::ones({1})), ShapeError);
  EXPECT_THROW((void)scale_norm(x, {3}, Tensor::ones({3})), ShapeError);
  EXPECT_THROW((void)scale_norm(x, {3}, Tensor::ones({}, Dtype::F64)), ShapeError);
}

/// Below eps the divisor is a constant: the gradient is dy / eps, without a projection.
TEST(L2Normalize, OfAShortRowHasAConstantDivisor) {
  const Tensor x = leaf({2, 2}, {0, 0, 3e-7, 4e-7});
  const Tensor dy = Tensor::of({2, 2}, {1, -2, 1, -2}, Dtype::F64);
  Tensor y;
  const Gradients g = gradients([&] { return y = l2_normalize(x, {2}, 1e-6); }, dy);
  expect_values(y, {0, 0, 0.3, 0.4});
  expect_values(g[x], {1e6, -2e6, 1e6, -2e6});
}

TEST(L2Normalize, RefusesAThirdDerivativeByName) {
  const Tensor x = leaf({1, 3}, {1, 2, 4});
  const Tensor v = Tensor::of({1, 3}, {1, 1, -1}, Dtype::F64);
  Tape tape;
  const Tensor y = l2_normalize(x, {3});
  const Gradients first = tape.backward(y, {.record = true, .cotangent = v});
  const Gradients second = tape.backward(first[x], {.record = true, .cotangent = v});
  try {
    (void)tape.backward(second[x], {.cotangent = v});
    ADD_FAILURE() << "a third derivative came back";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("l2_normalize_double_backward"));
  }
}

TEST(RowNormModules, RefuseBadOptionsAndInputs) {
  EXPECT_THROW(PartialRmsNorm({}), ShapeError);
  EXPECT_THROW(PartialRmsNorm({.normalized_shape = {4}, .p = 0}), Error);
  EXPECT_THROW(PartialRmsNorm({.normalized_shape = {4}, .p = 1.5}), Error);
  EXPECT_THROW(PartialRmsNorm({.normalized_shape = {4}, .eps = -1}), Error);
  EXPECT_THROW(ScaleNorm({}), ShapeError);
  EXPECT_THROW(ScaleNorm({.normalized_shape = {4}, .eps = -1}), Error);
  EXPECT_THROW(L2Normalize({.normalized_shape = {4, 0}}), ShapeError);
  EXPECT_THROW(L2Normalize({.normalized_shape = {4}, .eps = std::nan("")}), Error);
  EXPECT_THROW((void)make_norm(NormSpec::parse("prms(p=0)"), 4), Error);
  EXPECT_THROW((void)l2_normalize(Tensor::ones({2, 3}), {2}), ShapeError);
  EXPECT_THROW((void)partial_rms_norm(Tensor::ones({2, 3}), {3}, Tensor::ones({2})), ShapeError);
}

TEST(RowNormModules, DescribeAndMeasureThemselves) {
  EXPECT_EQ(make_norm(NormSpec::parse("prms(p=0.5, affine=false)"), 4)->describe(),
            "PartialRmsNorm([4], p=0.5, eps=1e-06, affine=false)");
  EXPECT_EQ(make_norm(NormSpec::parse("scale"), 4)->describe(), "ScaleNorm([4], eps=1e-05)");
  EXPECT_EQ(make_norm(NormSpec::parse("l2"), 4)->describe(), "L2Normalize([4], eps=1e-12)");
  const Tensor x = Tensor::of({2, 2}, {3, 4, 6, 8});
  std::map<std::string, double> measured;
  make_norm(NormSpec::parse("l2"), 2)->measure(x, [&](std::string_view name, double value) {
    measured[std::string(name)] = value;
  });
  EXPECT_NEAR(measured.at("scale_min"), 0.1, 1e-7);
  EXPECT_NEAR(measured.at("scale_max"), 0.2, 1e-7);
  EXPECT_NEAR(measured.at("normalized_mean"), 0.7, 1e-7);
}

}  // namespace
}  // namespace steady
