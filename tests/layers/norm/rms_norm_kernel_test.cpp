#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/rms_norm_kernel.hpp>

#include "kernel_testing.hpp"

namespace steady {
namespace {

using ::testing::Each;
using testing::for_each_row_sweep;
using testing::max_error;
using testing::nans;
using testing::Noise;
using testing::on_every_target;
using testing::with_threads;

template <class T>
struct Problem {
  RowShape shape;
  double eps = 1e-6;
  bool unit_offset = false;
  std::vector<T> x, dy, gamma;
};

template <class T>
Problem<T> problem(const RowShape& shape, double scale = 1, double offset = 0,
                   bool unit_offset = false) {
  Noise noise(3);
  return {shape,
          1e-6,
          unit_offset,
          noise.fill<T>(shape.elements(), scale, offset),
          noise.fill<T>(shape.elements()),
          noise.fill<T>(shape.affine)};
}

template <class T>
struct Result {
  std::vector<T> y, stats, dx, dgamma;
  bool operator==(const Result&) const = default;
};

template <class T>
Result<T> run(const Problem<T>& p) {
  const RowShape& s = p.shape;
  Result<T> r{nans<T>(s.elements()), nans<T>(s.rows), nans<T>(s.elements()), nans<T>(s.affine)};
  auto workspace = nans<T>(rms_norm_workspace(s));
  rms_norm_forward<T>(s, p.eps, p.unit_offset, p.x, p.gamma, r.y, r.stats);
  rms_norm_backward<T>(s, p.unit_offset, p.x, p.dy, p.gamma, r.stats, r.dx, r.dgamma, workspace);
  return r;
}

// The formula in long double, and the size of the terms each value is made of.
struct Reference {
  std::vector<double> y, dx, dgamma, y_scale, dx_scale, dgamma_scale;
};

template <class T>
Reference reference(const Problem<T>& p) {
  using Real = long double;
  const auto width = static_cast<std::size_t>(p.shape.width);
  const auto affine = static_cast<std::size_t>(p.shape.affine);
  const auto n = static_cast<Real>(width);
  Reference f;
  f.y = f.dx = f.y_scale = f.dx_scale = std::vector<double>(p.x.size());
  f.dgamma_scale = std::vector<double>(affine);
  std::vector<Real> dgamma(affine);
  const auto gain = [&](std::size_t i) {
    return (p.unit_offset ? Real(1) : Real(0)) + p.gamma[i % affine];
  };
  for (std::size_t at = 0; at < p.x.size(); at += width) {
    Real square = 0, s2 = 0, size2 = 0;
    for (std::size_t i = 0; i < width; ++i) square += static_cast<Real>(p.x[at + i]) * p.x[at + i];
    const Real r = 1 / std::sqrt(square / n + static_cast<Real>(p.eps));
    for (std::size_t i = 0; i < width; ++i) {
      const Real term = p.dy[at + i] * gain(i) * p.x[at + i] * r / n;
      s2 += term;
      size2 += std::abs(term);
    }
    for (std::size_t i = 0; i < width; ++i) {
      const Real xhat = p.x[at + i] * r, u = p.dy[at + i], w = u * gain(i);
      f.y[at + i] = static_cast<double>(xhat * gain(i));
      f.y_scale[at + i] = static_cast<double>(std::abs(xhat) * std::abs(gain(i)));
      f.dx[at + i] = static_cast<double>(r * (w - xhat * s2));
      f.dx_scale[at + i] = static_cast<double>(r * (std::abs(w) + std::abs(xhat) * size2));
      dgamma[i % affine] += u * xhat;
      f.dgamma_scale[i % affine] += static_cast<double>(std::abs(u * xhat));
    }
  }
  f.dgamma.assign(dgamma.begin(), dgamma.end());
  return f;
}

// A handful of roundings per value; 1 + gamma near zero is one of them and is measured by the gain.
template <class T>
constexpr double Ulps = 8 * static_cast<double>(std::numeric_limits<T>::epsilon());

template <class T>
void expect_close(const Result<T>& r, const Reference& f) {
  EXPECT_LE(max_error(r.y, f.y, f.y_scale), Ulps<T>);
  EXPECT_LE(max_error(r.dx, f.dx, f.dx_scale), Ulps<T>);
  EXPECT_LE(max_error(r.dgamma, f.dgamma, f.dgamma_scale), Ulps<T>);
}

template <class T>
class RmsNormKernel : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(RmsNormKernel, Types);

// The class test of CASES group LN.
TYPED_TEST(RmsNormKernel, IsAFewUlpsFromTheFormulaForEveryShapeOffsetScaleAndGain) {
  for_each_row_sweep<TypeParam>([](const RowShape& shape, double offset, double scale) {
    for (const bool unit_offset : {false, true}) {
      const auto p = problem<TypeParam>(shape, scale, offset, unit_offset);
      const Reference f = reference(p);
      SCOPED_TRACE(unit_offset);
      on_every_target([&] { expect_close(run(p), f); });
    }
  });
}

TYPED_TEST(RmsNormKernel, SharesOneStatisticOverPositionsWithAGainPerChannel) {
  for (const RowShape& shape : {RowShape{3, 49 * 5, 5}, RowShape{4, 6000, 600},
                                RowShape{2, 9000, 3000}, RowShape{3, 64, 1}}) {
    const auto p = problem<TypeParam>(shape, 1, 0.5, true);
    const Reference f = reference(p);
    on_every_target([&] {
      SCOPED_TRACE(fmt::format("width {} affine {}", shape.width, shape.affine));
      expect_close(run(p), f);
    });
  }
}

TYPED_TEST(RmsNormKernel, GivesTheSameBitsForAnyNumberOfThreads) {
  for (const RowShape& shape :
       {RowShape{1025, 96, 96}, RowShape{70001, 5, 5}, RowShape{67, 3000, 3000}}) {
    const auto p = problem<TypeParam>(shape);
    Result<TypeParam> first;
    with_threads([&](int threads) {
      const auto r = run(p);
      if (threads == 1) first = r;
      EXPECT_TRUE(r == first) << threads << " threads, " << shape.rows << " rows";
    });
  }
}

TYPED_TEST(RmsNormKernel, GivesARowTheSameBitsWhereverItLies) {
  for (const std::int64_t width : {211, 2061}) {
    const auto step = static_cast<std::size_t>(width);
    auto p = problem<TypeParam>({701, width, width});
    for (std::size_t i = step; i < p.x.size(); ++i) {
      p.x[i] = p.x[i - step];
      p.dy[i] = p.dy[i - step];
    }
    const auto r = run(p);
    for (std::size_t i = step; i < p.x.size(); ++i) {
      ASSERT_EQ(r.y[i], r.y[i - step]) << width << " " << i;
      ASSERT_EQ(r.dx[i], r.dx[i - step]) << width << " " << i;
    }
  }
}

TYPED_TEST(RmsNormKernel, TreatsAbsentSpansAsGainOneAndUnwantedOutputs) {
  using T = TypeParam;
  auto p = problem<T>({66, 45, 45});
  p.gamma.assign(45, T(1));
  on_every_target([&] {
    const auto full = run(p);
    auto y = nans<T>(p.shape.elements()), dx = y, stats = nans<T>(66), dgamma = nans<T>(45);
    auto ws = nans<T>(rms_norm_workspace(p.shape));
    rms_norm_forward<T>(p.shape, p.eps, true, p.x, {}, y, stats);
    EXPECT_EQ(y, full.y);
    rms_norm_backward<T>(p.shape, true, p.x, p.dy, {}, stats, dx, {}, ws);
    EXPECT_EQ(dx, full.dx);
    rms_norm_backward<T>(p.shape, true, p.x, p.dy, {}, stats, {}, dgamma, ws);
    EXPECT_EQ(dgamma, full.dgamma);
  });
}

TYPED_TEST(RmsNormKernel, LeavesInputsAsTheyWereAndAcceptsNoRows) {
  using T = TypeParam;
  const auto p = problem<T>({70, 33, 33});
  const auto copy = p;
  run(p);
  EXPECT_EQ(p.x, copy.x);
  EXPECT_EQ(p.dy, copy.dy);
  EXPECT_EQ(p.gamma, copy.gamma);
  const auto none = run(problem<T>({0, 4, 4}));
  EXPECT_THAT(none.dgamma, Each(T(0)));
}

TYPED_TEST(RmsNormKernel, PassesNanOnWithinItsRowOnly) {
  using T = TypeParam;
  auto p = problem<T>({3, 50, 50});
  p.x[50 + 20] = std::numeric_limits<T>::quiet_NaN();
  on_every_target([&] {
    const auto r = run(p);
    for (std::size_t i = 0; i < r.y.size(); ++i) {
      EXPECT_EQ(std::isnan(r.y[i]), i / 50 == 1) << i;
      EXPECT_EQ(std::isnan(r.dx[i]), i / 50 == 1) << i;
    }
  });
}

// Case LN-05: eps belongs inside the root.
TEST(RmsNormKernelCases, EpsIsInsideTheRoot) {
  on_every_target([] {
    const std::vector<float> x{1e-3F, -2e-3F, 5e-4F, 0}, w(4, 1.0F);
    std::vector<float> y(4);
    rms_norm_forward<float>({1, 4, 4}, 1e-6, false, x, w, y, {});
    EXPECT_NEAR(y[0], 0.6575959492214292, 1e-6);
    EXPECT_NEAR(y[1], -1.3151918984428583, 1e-6);
    EXPECT_NEAR(y[2], 0.3287979746107146, 1e-6);
    EXPECT_EQ(y[3], 0.0F);
    rms_norm_forward<float>({1, 4, 4}, 1e-5, false, x, w, y, {});
    EXPECT_NEAR(y[0], 0.29731765849886654, 1e-6);
    EXPECT_NEAR(y[2], 0.14865882924943327, 1e-6);
    std::vector<float> spiky(4096, 0.01F), out(4096);
    spiky[0] = 100;
    rms_norm_forward<float>({1, 4096, 4096}, 1e-5, false, spiky, {}, out, {});
    EXPECT_NEAR(out[0], 63.998558576697626, 64e-6);
    EXPECT_NEAR(out[1], 0.006399855857669763, 1e-8);
  });
}

// Case LN-06: zero rows are padding, not an error.
TEST(RmsNormKernelCases, AnAllZeroRowStaysFinite) {
  on_every_target([] {
    Problem<float> p{{1, 3, 3}, 1e-6, false, {0, 0, 0}, {1, -1, 0.5F}, {1, 2, 3}};
    const auto r = run(p);
    EXPECT_THAT(r.y, Each(0.0F));
    EXPECT_THAT(r.dgamma, Each(0.0F));
    EXPECT_FLOAT_EQ(r.dx[0], 1000);
    EXPECT_FLOAT_EQ(r.dx[1], -2000);
    EXPECT_FLOAT_EQ(r.dx[2], 1500);
  });
}

// Case LN-19: unfinished tails and partial sums of dgamma show at these row counts.
TEST(RmsNormKernelCases, WeightGradientEqualsTheSumForEveryRowCount) {
  for (const std::int64_t rows : {1, 63, 64, 65, 1025, 70001}) {
    const auto p = problem<float>({rows, 5, 5});
    const Reference f = reference(p);
    on_every_target(
        [&] { EXPECT_LE(max_error(run(p).dgamma, f.dgamma, f.dgamma_scale), 1e-6) << rows; });
  }
}

TEST(RmsNormKernelErrors, WrongSizesThrowBeforeAnythingIsWritten) {
  std::vector<float> x(12), y(12, 7.0F), gamma(4), stats(2);
  EXPECT_THROW(rms_norm_forward<float>({3, 4, 4}, 1e-6, false, x, gamma, y, stats), ShapeError);
  EXPECT_THROW(rms_norm_forward<float>({2, 4, 4}, 1e-6, false, x, gamma, y, stats), ShapeError);
  EXPECT_THAT(y, Each(7.0F));
}

double contracted_backward(const Problem<double>& p, const std::vector<double>& a,
                           const std::vector<double>& bg) {
  const auto r = run(p);
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * r.dx[i];
  for (std::size_t i = 0; i < bg.size(); ++i) sum += bg[i] * r.dgamma[i];
  return sum;
}

void expect_differences(Problem<double> p, std::vector<double> Problem<double>::*input,
                        const std::vector<double>& got, const std::vector<double>& a,
                        const std::vector<double>& bg) {
  constexpr double Step = 1e-5;
  for (std::size_t i = 0; i < got.size(); ++i) {
    double& v = (p.*input)[i];
    const double before = v;
    v = before + Step;
    const double up = contracted_backward(p, a, bg);
    v = before - Step;
    const double down = contracted_backward(p, a, bg);
    v = before;
    EXPECT_NEAR(got[i], (up - down) / (2 * Step), 1e-7) << i;
  }
}

TEST(RmsNormDoubleBackward, IsTheDerivativeOfBackward) {
  for (const RowShape& shape : {RowShape{3, 5, 5}, RowShape{2, 12, 3}, RowShape{4, 1, 1}}) {
    for (int parts = 1; parts < 8; ++parts) {
      auto p = problem<double>(shape, 1, 0.2, (parts & 4) != 0);
      p.eps = 0.3;  // large, so that a wrong place for it shows
      Noise noise(9);
      std::vector<double> a, bg;
      if (parts & 1) a = noise.fill<double>(shape.elements());
      if (parts & 2) bg = noise.fill<double>(shape.affine);
      const auto r = run(p);
      auto ddy = nans<double>(shape.elements()), dx2 = ddy, dgamma2 = nans<double>(shape.affine);
      auto ws = nans<double>(rms_norm_workspace(shape));
      rms_norm_double_backward<double>(shape, p.unit_offset, p.x, p.dy, p.gamma, r.stats, a, bg,
                                       ddy, dx2, dgamma2, ws);
      SCOPED_TRACE(fmt::format("width {} affine {} parts {}", shape.width, shape.affine, parts));
      expect_differences(p, &Problem<double>::dy, ddy, a, bg);
      expect_differences(p, &Problem<double>::x, dx2, a, bg);
      expect_differences(p, &Problem<double>::gamma, dgamma2, a, bg);
    }
  }
}

}  // namespace
}  // namespace steady
