#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/group_norm_kernel.hpp>
#include <utility>

#include "kernel_testing.hpp"

namespace steady {
namespace {

using ::testing::Each;
using testing::max_error;
using testing::nans;
using testing::Noise;
using testing::on_every_target;
using testing::with_threads;

constexpr double Eps = 1e-5;

template <class T>
struct Problem {
  GroupShape shape;
  std::vector<T> x, dy, gamma, beta;
};

template <class T>
Problem<T> problem(const GroupShape& shape, double scale = 1, double offset = 0) {
  Noise noise(1);
  return {shape, noise.fill<T>(shape.elements(), scale, offset), noise.fill<T>(shape.elements()),
          noise.fill<T>(shape.channels), noise.fill<T>(shape.channels)};
}

template <class T>
struct Result {
  std::vector<T> y, stats, dx, dgamma, dbeta;
  bool operator==(const Result&) const = default;
};

template <class T>
Result<T> run(const Problem<T>& p) {
  const GroupShape& s = p.shape;
  Result<T> r{nans<T>(s.elements()), nans<T>(3 * s.samples * s.groups), nans<T>(s.elements()),
              nans<T>(s.channels), nans<T>(s.channels)};
  auto workspace = nans<double>(group_norm_workspace(s));
  group_norm_forward<T>(s, Eps, p.x, p.gamma, p.beta, r.y, r.stats);
  group_norm_backward<T>(s, p.x, p.dy, p.gamma, r.stats, r.dx, r.dgamma, r.dbeta, workspace);
  return r;
}

/// The two-pass formula in long double, and beside each value the size of the terms it is made of:
/// what rounding errors are measured against.
struct Reference {
  std::vector<double> y, dx, dgamma, dbeta, y_scale, dx_scale, dgamma_scale, dbeta_scale;
};

template <class T>
Reference reference(const Problem<T>& p) {
  using Real = long double;
  const GroupShape& s = p.shape;
  const auto channels = static_cast<std::size_t>(s.channels);
  Reference f;
  f.y = f.dx = f.y_scale = f.dx_scale = std::vector<double>(p.x.size());
  f.dgamma = f.dbeta = f.dgamma_scale = f.dbeta_scale = std::vector<double>(channels);
  std::vector<Real> dgamma(channels), dbeta(channels);
  for (std::int64_t set = 0; set < s.samples * s.groups; ++set) {
    std::vector<std::pair<std::size_t, std::size_t>> at;  // element, channel
    for (std::int64_t i = 0; i < s.positions; ++i) {
      for (std::int64_t j = 0; j < s.group_channels(); ++j) {
        const std::int64_t c = set % s.groups * s.group_channels() + j;
        const std::int64_t row = set / s.groups * s.positions + i;
        at.emplace_back(row * s.channels + c, c);
      }
    }
    const auto n = static_cast<Real>(at.size());
    const Real pivot = p.x[at.front().first];
    Real mean = 0, var = 0, s1 = 0, s2 = 0, size1 = 0, size2 = 0;
    for (const auto& [i, c] : at) mean += (p.x[i] - pivot) / n;
    const auto centred = [&](std::size_t i) { return (p.x[i] - pivot) - mean; };
    for (const auto& [i, c] : at) var += centred(i) * centred(i) / n;
    const Real r = 1 / std::sqrt(var + static_cast<Real>(Eps));
    const Real spread = std::sqrt(var) * r;
    for (const auto& [i, c] : at) {
      const Real w = static_cast<Real>(p.dy[i]) * p.gamma[c], xhat = centred(i) * r;
      s1 += w / n;
      s2 += w * xhat / n;
      size1 += std::abs(w) / n;
      size2 += std::abs(w) * (std::abs(xhat) + spread) / n;
    }
    for (const auto& [i, c] : at) {
      const Real u = p.dy[i], w = u * p.gamma[c], xhat = centred(i) * r;
      const Real size = std::abs(xhat) + spread;
      f.y[i] = static_cast<double>(xhat * p.gamma[c] + p.beta[c]);
      f.y_scale[i] = static_cast<double>(size * std::abs(p.gamma[c]) + std::abs(p.beta[c]));
      f.dx[i] = static_cast<double>(r * (w - s1 - xhat * s2));
      f.dx_scale[i] = static_cast<double>(r * (std::abs(w) + size1 + size * size2));
      dgamma[c] += u * xhat;
      dbeta[c] += u;
      f.dgamma_scale[c] += static_cast<double>(std::abs(u) * size);
      f.dbeta_scale[c] += static_cast<double>(std::abs(u));
    }
  }
  f.dgamma.assign(dgamma.begin(), dgamma.end());
  f.dbeta.assign(dbeta.begin(), dbeta.end());
  return f;
}

// A handful of roundings per value; in float64 the mean is merged in the same precision, and so
// costs the digits by which it is larger than the spread.
template <class T>
void expect_close(const Result<T>& r, const Reference& f, double mean_to_spread) {
  const double lost = sizeof(T) == 8 ? 1 + mean_to_spread : 1;
  const double tolerance = 8 * static_cast<double>(std::numeric_limits<T>::epsilon()) * lost;
  EXPECT_LE(max_error(r.y, f.y, f.y_scale), tolerance);
  EXPECT_LE(max_error(r.dx, f.dx, f.dx_scale), tolerance);
  EXPECT_LE(max_error(r.dgamma, f.dgamma, f.dgamma_scale), tolerance);
  EXPECT_LE(max_error(r.dbeta, f.dbeta, f.dbeta_scale), tolerance);
}

/// Channels that do and do not fill vectors, one position, one channel, wider than a block of
/// columns, more positions than one chunk, several samples per task and one, several positions to a
/// line, groups that are rows.
const std::vector<GroupShape> Shapes{
    {6, 64, 16, 8},   {3, 49, 8, 2},   {37, 1, 64, 4},  {3, 1, 2100, 2},   {3, 49, 6, 2},
    {5, 1, 8, 2},     {2, 16, 12, 12}, {1, 70, 33, 11}, {2, 9, 2100, 7},   {1, 3000, 64, 8},
    {4, 1025, 24, 3}, {2, 5, 1, 1},    {300, 4, 16, 4}, {1, 9000, 10, 10}, {2, 17, 3000, 150}};

template <class T>
class GroupNormKernel : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(GroupNormKernel, Types);

TYPED_TEST(GroupNormKernel, IsAFewUlpsFromTheTwoPassFormulaForEveryShapeOffsetAndScale) {
  for (const GroupShape& shape : Shapes) {
    for (const auto& at : {std::pair{0.0, 1.0}, {1e4, 1.0}, {1e3, 1e4}, {0.5, 1e-4}}) {
      const double offset = at.first;
      const double scale = at.second;
      SCOPED_TRACE(fmt::format("{} x {} x {}, {} groups, offset {}, scale {}", shape.samples,
                               shape.positions, shape.channels, shape.groups, offset, scale));
      const auto p = problem<TypeParam>(shape, scale, offset);
      const Reference f = reference(p);
      on_every_target([&] { expect_close(run(p), f, offset / scale); });
    }
  }
}

/// A mean of 1e4 beside a spread of 1: the normalised value to 2e-6 in float32.
TEST(GroupNormKernelAccuracy, AMeanOfTenThousandCostsNoDigits) {
  for (const GroupShape& shape : {GroupShape{4, 49, 512, 32}, GroupShape{2, 7168, 8, 2},
                                  GroupShape{3, 1, 7168, 4}, GroupShape{2, 196, 64, 64}}) {
    auto p = problem<float>(shape, 1, 1e4);
    p.gamma.assign(p.gamma.size(), 1.0F);
    p.beta.assign(p.beta.size(), 0.0F);
    const Reference f = reference(p);
    EXPECT_LE(max_error(run(p).y, f.y, std::vector<double>(p.x.size(), 1.0)), 2e-6);
  }
}

TYPED_TEST(GroupNormKernel, AConstantGroupGivesTheBiasExactly) {
  auto p = problem<TypeParam>({2, 7, 6, 2});
  p.x.assign(p.x.size(), TypeParam(1e6));
  const auto r = run(p);
  for (std::size_t i = 0; i < r.y.size(); ++i) EXPECT_EQ(r.y[i], p.beta[i % 6]);
  EXPECT_THAT(r.dgamma, Each(TypeParam(0)));
}

TYPED_TEST(GroupNormKernel, HasTheSameBitsForAnyNumberOfThreads) {
  for (const GroupShape& shape : Shapes) {
    const auto p = problem<TypeParam>(shape);
    const auto expected = run(p);
    with_threads([&](int threads) { EXPECT_EQ(run(p), expected) << threads << " threads"; });
  }
}

TYPED_TEST(GroupNormKernel, ASampleDoesNotDependOnTheOthers) {
  const GroupShape shape{7, 20, 12, 3};
  const auto p = problem<TypeParam>(shape);
  const auto all = run(p);
  const auto size = shape.slab().elements();
  for (std::int64_t n = 0; n < shape.samples; ++n) {
    GroupShape one = shape;
    one.samples = 1;
    const auto part = [&](const std::vector<TypeParam>& v) {
      return std::vector<TypeParam>(v.begin() + n * size, v.begin() + (n + 1) * size);
    };
    const auto r = run(Problem<TypeParam>{one, part(p.x), part(p.dy), p.gamma, p.beta});
    EXPECT_EQ(r.y, part(all.y));
    EXPECT_EQ(r.dx, part(all.dx));
  }
}

TYPED_TEST(GroupNormKernel, GivesTheMomentsOfEveryGroup) {
  const GroupShape shape{2, 5, 6, 3};
  const auto p = problem<TypeParam>(shape, 1, 100);
  std::vector<Moments> moments(6);
  auto y = nans<TypeParam>(shape.elements());
  group_norm_forward<TypeParam>(shape, Eps, p.x, {}, {}, y, {}, moments);
  for (std::size_t set = 0; set < 6; ++set) {
    double mean = 0, m2 = 0;
    const auto each = [&](auto body) {
      for (std::size_t i = 0; i < 10; ++i) {
        body(double(p.x[set / 3 * 30 + i / 2 * 6 + set % 3 * 2 + i % 2]));
      }
    };
    each([&](double v) { mean += v / 10; });
    each([&](double v) { m2 += (v - mean) * (v - mean); });
    EXPECT_EQ(moments[set].n, 10);
    EXPECT_NEAR(moments[set].mean, mean, 1e-5);
    EXPECT_NEAR(moments[set].m2, m2, 1e-5);
  }
}

TYPED_TEST(GroupNormKernel, WritesOnlyTheGradientsThatAreWanted) {
  const auto p = problem<TypeParam>({3, 49, 6, 2});
  const auto all = run(p);
  const GroupShape& s = p.shape;
  auto workspace = nans<double>(group_norm_workspace(s));
  auto dx = nans<TypeParam>(s.elements());
  group_norm_backward<TypeParam>(s, p.x, p.dy, p.gamma, all.stats, dx, {}, {}, workspace);
  EXPECT_EQ(dx, all.dx);
  auto dgamma = nans<TypeParam>(s.channels), dbeta = nans<TypeParam>(s.channels);
  group_norm_backward<TypeParam>(s, p.x, p.dy, p.gamma, all.stats, {}, dgamma, {}, workspace);
  group_norm_backward<TypeParam>(s, p.x, p.dy, p.gamma, all.stats, {}, {}, dbeta, workspace);
  EXPECT_EQ(dgamma, all.dgamma);
  EXPECT_EQ(dbeta, all.dbeta);
}

TEST(GroupNormKernelContract, SizesThatDoNotMatchThrow) {
  const auto p = problem<double>({2, 3, 4, 2});
  auto y = nans<double>(24);
  const auto forward = [&](const GroupShape& s, std::span<const double> gamma,
                           std::span<double> stats) {
    group_norm_forward<double>(s, Eps, p.x, gamma, p.beta, y, stats);
  };
  EXPECT_NO_THROW(forward({2, 3, 4, 2}, p.gamma, {}));
  EXPECT_THROW(forward({2, 3, 4, 3}, p.gamma, {}), ShapeError);
  EXPECT_THROW(forward({2, 3, 4, 0}, p.gamma, {}), ShapeError);
  EXPECT_THROW(forward({3, 3, 4, 2}, p.gamma, {}), ShapeError);
  EXPECT_THROW(forward({2, 3, 4, 2}, std::span(p.gamma).first(2), {}), ShapeError);
  auto stats = nans<double>(4);
  EXPECT_THROW(forward({2, 3, 4, 2}, p.gamma, stats), ShapeError);
}

}  // namespace
}  // namespace steady
