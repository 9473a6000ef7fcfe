#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/batch_norm_kernel.hpp>

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

enum class Mode { Train, Frozen };

template <class T>
struct Problem {
  ColumnShape shape;
  Mode mode = Mode::Train;
  double eps = 1e-5;
  std::vector<T> x, dy, gamma, beta, running_mean, running_var;
};

template <class T>
Problem<T> problem(const ColumnShape& shape, double scale = 1, double offset = 0,
                   Mode mode = Mode::Train) {
  Noise noise(5);
  return {shape,
          mode,
          1e-5,
          noise.fill<T>(shape.elements(), scale, offset),
          noise.fill<T>(shape.elements()),
          noise.fill<T>(shape.channels),
          noise.fill<T>(shape.channels),
          noise.fill<T>(shape.channels, scale, offset),
          noise.fill<T>(shape.channels, 0.5 * scale * scale, scale * scale)};
}

template <class T>
struct Result {
  std::vector<T> y, stats, dx, dgamma, dbeta;
  std::vector<Moments> moments;

  [[nodiscard]] bool same_bits(const Result& r) const {
    return y == r.y && stats == r.stats && dx == r.dx && dgamma == r.dgamma && dbeta == r.dbeta;
  }
};

template <class T>
Result<T> run(const Problem<T>& p) {
  const ColumnShape& s = p.shape;
  const auto channels = static_cast<std::size_t>(s.channels);
  Result<T> r{nans<T>(s.elements()), nans<T>(3 * s.channels), nans<T>(s.elements()),
              nans<T>(s.channels),   nans<T>(s.channels),     std::vector<Moments>(channels)};
  auto ws = nans<double>(column_workspace(s));
  if (p.mode == Mode::Train) {
    batch_norm_forward<T>(s, p.eps, p.x, p.gamma, p.beta, r.y, r.moments, r.stats, ws);
    batch_norm_backward<T>(s, p.x, p.dy, p.gamma, r.stats, r.dx, r.dgamma, r.dbeta, ws);
  } else {
    batch_norm_running_stats<T>(p.running_mean, p.running_var, p.eps, r.stats);
    batch_norm_apply<T>(s, p.x, p.gamma, p.beta, r.stats, r.y);
    batch_norm_backward_frozen<T>(s, p.x, p.dy, p.gamma, r.stats, r.dx, r.dgamma, r.dbeta, ws);
  }
  return r;
}

// The two-pass formula in long double, and the size of the terms each value is made of.
struct Reference {
  std::vector<double> y, dx, dgamma, dbeta, mean, var;
  std::vector<double> y_scale, dx_scale, dgamma_scale, dbeta_scale;
};

template <class T>
Reference reference(const Problem<T>& p) {
  using Real = long double;
  const auto channels = static_cast<std::size_t>(p.shape.channels);
  const auto n = static_cast<Real>(p.shape.rows);
  const bool train = p.mode == Mode::Train;
  Reference f;
  f.y = f.dx = f.y_scale = f.dx_scale = std::vector<double>(p.x.size());
  f.dgamma = f.dbeta = f.mean = f.var = std::vector<double>(channels);
  f.dgamma_scale = f.dbeta_scale = f.mean;
  for (std::size_t c = 0; c < channels; ++c) {
    const Real origin = train ? p.x[c] : p.running_mean[c];
    Real mean = 0, var = 0;  // of x - origin, which is exact for a large mean
    for (std::size_t i = c; i < p.x.size(); i += channels) mean += (p.x[i] - origin) / n;
    for (std::size_t i = c; i < p.x.size(); i += channels) {
      var += (p.x[i] - origin - mean) * (p.x[i] - origin - mean) / n;
    }
    if (!train) {
      mean = 0;
      var = p.running_var[c];
    }
    const Real r = 1 / std::sqrt(var + static_cast<Real>(p.eps));
    // A double mean is rounded itself, and that is part of the contract for T = double.
    const Real spread =
        std::sqrt(var) * r + (std::is_same_v<T, double> ? r * std::abs(origin + mean) : 0);
    Real s1 = 0, s2 = 0, size1 = 0, size2 = 0;
    const auto xhat = [&](std::size_t i) { return (p.x[i] - origin - mean) * r; };
    for (std::size_t i = c; i < p.x.size(); i += channels) {
      const Real u = p.dy[i];
      s1 += u;
      s2 += u * xhat(i);
      size1 += std::abs(u);
      size2 += std::abs(u) * (std::abs(xhat(i)) + spread);
    }
    for (std::size_t i = c; i < p.x.size(); i += channels) {
      const Real g = p.gamma[c], size = std::abs(xhat(i)) + spread, u = p.dy[i];
      f.y[i] = static_cast<double>(xhat(i) * g + p.beta[c]);
      f.y_scale[i] = static_cast<double>(size * std::abs(g) + std::abs(p.beta[c]));
      const Real inner = train ? u - s1 / n - xhat(i) * s2 / n : u;
      f.dx[i] = static_cast<double>(g * r * inner);
      f.dx_scale[i] =
          static_cast<double>(std::abs(g) * r * (std::abs(u) + (size1 + size * size2) / n));
    }
    f.dgamma[c] = static_cast<double>(s2);
    f.dbeta[c] = static_cast<double>(s1);
    f.dgamma_scale[c] = static_cast<double>(size2);
    f.dbeta_scale[c] = static_cast<double>(size1);
    f.mean[c] = static_cast<double>(origin + mean);
    f.var[c] = static_cast<double>(var);
  }
  return f;
}

template <class T>
constexpr double Ulps = 8 * static_cast<double>(std::numeric_limits<T>::epsilon());

template <class T>
void expect_close(const Result<T>& r, const Reference& f) {
  EXPECT_LE(max_error(r.y, f.y, f.y_scale), Ulps<T>);
  EXPECT_LE(max_error(r.dx, f.dx, f.dx_scale), Ulps<T>);
  EXPECT_LE(max_error(r.dgamma, f.dgamma, f.dgamma_scale), Ulps<T>);
  EXPECT_LE(max_error(r.dbeta, f.dbeta, f.dbeta_scale), Ulps<T>);
}

template <class T>
class BatchNormKernel : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(BatchNormKernel, Types);

// The class test of CASES group LN, rows and columns exchanged.
TYPED_TEST(BatchNormKernel, IsAFewUlpsFromTheTwoPassFormulaForEveryShapeOffsetAndScale) {
  for_each_row_sweep<TypeParam>([](const RowShape& shape, double offset, double scale) {
    if (shape.rows == 1) return;  // one value per channel has no variance
    for (const Mode mode : {Mode::Train, Mode::Frozen}) {
      const auto p = problem<TypeParam>({shape.rows, shape.width}, scale, offset, mode);
      const Reference f = reference(p);
      SCOPED_TRACE(int(mode));
      on_every_target([&] { expect_close(run(p), f); });
    }
  });
}

// Many chunks, lines that hold several rows, and 147 * 147 rows, where a peer's tiling failed.
TYPED_TEST(BatchNormKernel, IsAFewUlpsFromTheTwoPassFormulaForManyRows) {
  for (const ColumnShape& shape :
       {ColumnShape{147 * 147, 2}, ColumnShape{1025, 2}, ColumnShape{40001, 16}}) {
    const auto p = problem<TypeParam>(shape, 1, 30);
    const Reference f = reference(p);
    const auto r = run(p);
    expect_close(r, f);
    for (std::size_t c = 0; c < r.moments.size(); ++c) {
      EXPECT_EQ(r.moments[c].n, static_cast<double>(shape.rows));
      EXPECT_NEAR(r.moments[c].mean, f.mean[c], 1e-6);
      EXPECT_NEAR(r.moments[c].variance(), f.var[c], 1e-6 * f.var[c]);
    }
  }
}

TYPED_TEST(BatchNormKernel, GivesTheSameBitsForAnyNumberOfThreads) {
  for (const ColumnShape& shape : {ColumnShape{70001, 5}, ColumnShape{20000, 16},
                                   ColumnShape{256, 512}, ColumnShape{300, 3000}}) {
    const auto p = problem<TypeParam>(shape);
    Result<TypeParam> first;
    with_threads([&](int threads) {
      const auto r = run(p);
      if (threads == 1) first = r;
      EXPECT_TRUE(r.same_bits(first)) << threads << " threads, " << shape.channels << " channels";
    });
  }
}

TYPED_TEST(BatchNormKernel, TreatsAbsentSpansAsGainOneShiftZeroAndUnwantedOutputs) {
  using T = TypeParam;
  auto p = problem<T>({70, 9});
  p.gamma.assign(9, T(1));
  p.beta.assign(9, T(0));
  const auto full = run(p);
  auto y = nans<T>(p.shape.elements()), dx = y, dgamma = nans<T>(9), dbeta = dgamma;
  auto ws = nans<double>(column_workspace(p.shape));
  batch_norm_apply<T>(p.shape, p.x, {}, {}, full.stats, y);
  EXPECT_EQ(y, full.y);
  batch_norm_backward<T>(p.shape, p.x, p.dy, {}, full.stats, dx, {}, {}, ws);
  EXPECT_EQ(dx, full.dx);
  batch_norm_backward<T>(p.shape, p.x, p.dy, {}, full.stats, {}, dgamma, {}, ws);
  EXPECT_EQ(dgamma, full.dgamma);
  batch_norm_backward<T>(p.shape, p.x, p.dy, {}, full.stats, {}, {}, dbeta, ws);
  EXPECT_EQ(dbeta, full.dbeta);
}

TYPED_TEST(BatchNormKernel, LeavesInputsAsTheyWere) {
  const auto p = problem<TypeParam>({70, 33});
  const auto copy = p;
  run(p);
  EXPECT_EQ(p.x, copy.x);
  EXPECT_EQ(p.dy, copy.dy);
  EXPECT_EQ(p.gamma, copy.gamma);
  EXPECT_EQ(p.beta, copy.beta);
}

TYPED_TEST(BatchNormKernel, PassesNanOnWithinItsChannelOnly) {
  using T = TypeParam;
  auto p = problem<T>({300, 5});
  p.x[5 * 200 + 3] = std::numeric_limits<T>::quiet_NaN();
  on_every_target([&] {
    const auto r = run(p);
    for (std::size_t i = 0; i < r.y.size(); ++i) {
      EXPECT_EQ(std::isnan(r.y[i]), i % 5 == 3) << i;
      EXPECT_EQ(std::isnan(r.dx[i]), i % 5 == 3) << i;
    }
  });
}

TYPED_TEST(BatchNormKernel, GivesConstantChannelsExactlyTheShift) {
  using T = TypeParam;
  for (const std::int64_t rows : {2, 65, 1000}) {
    auto p = problem<T>({rows, 3});
    p.x.assign(p.x.size(), static_cast<T>(1e4 / 3));
    on_every_target([&] {
      const auto r = run(p);
      for (std::size_t i = 0; i < r.y.size(); ++i) ASSERT_EQ(r.y[i], p.beta[i % 3]) << rows;
      ASSERT_THAT(r.dgamma, Each(T(0))) << rows;
    });
  }
}

// Case BN-01: normalizes with the biased variance and keeps the unbiased one.
TYPED_TEST(BatchNormKernel, NormalizesBiasedAndKeepsUnbiasedVariance) {
  using T = TypeParam;
  const double tolerance = std::is_same_v<T, float> ? 1e-6 : 1e-12;
  const std::vector<T> x{1, 10, 2, 20, 4, 40, 9, 90};
  const std::vector<double> want{
      -0.9733280145068077, -0.9733285216617936, -0.6488853430045385, -0.6488856811078624, 0, 0,
      1.6222133575113462,  1.6222142027696558};
  const ColumnShape shape{4, 2};
  on_every_target([&] {
    auto y = nans<T>(8), stats = nans<T>(6);
    auto ws = nans<double>(column_workspace(shape));
    std::vector<Moments> moments(2);
    batch_norm_forward<T>(shape, 1e-5, x, {}, {}, y, moments, stats, ws);
    for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(y[i], want[i], tolerance);
    std::vector<T> mean{0, 0}, var{1, 1};
    batch_norm_running_update<T>(moments, 0.1, mean, var, mean, var);
    EXPECT_NEAR(mean[0], 0.4, tolerance);
    EXPECT_NEAR(mean[1], 4.0, 10 * tolerance);
    EXPECT_NEAR(var[0], 2.1666666666666665, 10 * tolerance);
    EXPECT_NEAR(var[1], 127.56666666666669, 100 * tolerance);
  });
}

// Case BN-08: running statistics are constants; the terms that couple the rows are absent.
TYPED_TEST(BatchNormKernel, FrozenBackwardTreatsStatisticsAsConstants) {
  using T = TypeParam;
  const double tolerance = std::is_same_v<T, float> ? 1e-5 : 1e-12;
  Problem<T> p{{2, 2},      Mode::Frozen,      1e-5,        {1, 2, 3, 5}, {1, -2, T(0.5), 3},
               {2, T(0.5)}, {T(0.1), T(-0.2)}, {T(0.5), 1}, {4, T(0.25)}};
  const auto r = run(p);
  const std::vector<double> y{0.5999993750011718, 0.79998000059998, 2.5999968750058593,
                              3.7999200023999196};
  const std::vector<double> dx{0.9999987500023437, -1.9999600011999599, 0.49999937500117186,
                               2.99994000179994};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(r.y[i], y[i], tolerance);
    EXPECT_NEAR(r.dx[i], dx[i], tolerance);
  }
  EXPECT_NEAR(r.dgamma[0], 0.8749989062520508, tolerance);
  EXPECT_NEAR(r.dgamma[1], 19.999600011999597, 20 * tolerance);
  EXPECT_NEAR(r.dbeta[0], 1.5, tolerance);
  EXPECT_NEAR(r.dbeta[1], 1.0, tolerance);
}

// Case BN-09.
TYPED_TEST(BatchNormKernel, TrainBackwardGivesAllThreeGradients) {
  using T = TypeParam;
  const double tolerance = std::is_same_v<T, float> ? 1e-5 : 1e-12;
  Problem<T> p{{3, 2},
               Mode::Train,
               1e-5,
               {1, 2, 3, 5, 4, -1},
               {1, -2, T(0.5), 3, -1, T(0.25)},
               {2, T(0.5)},
               {T(0.1), T(-0.2)},
               {},
               {}};
  const auto r = run(p);
  const std::vector<double> dx{-0.28633997894058666, -0.4932996065610003, 0.8590491443758407,
                               0.2466502710638302,   -0.5727091654352535, 0.24664933549717016};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(r.dx[i], dx[i], tolerance);
  EXPECT_NEAR(r.dgamma[0], -2.271713254331882, tolerance);
  EXPECT_NEAR(r.dgamma[1], 3.3680455896233816, tolerance);
  EXPECT_NEAR(r.dbeta[0], 0.5, tolerance);
  EXPECT_NEAR(r.dbeta[1], 1.25, tolerance);
}

// Case LN-19: unfinished tails and partial sums of dgamma and dbeta show at these row counts.
TEST(BatchNormKernelCases, ParameterGradientsEqualTheSumForEveryRowCount) {
  for (const std::int64_t rows : {2, 63, 64, 65, 1025, 70001}) {
    const auto p = problem<float>({rows, 5});
    const Reference f = reference(p);
    on_every_target([&] {
      const auto r = run(p);
      EXPECT_LE(max_error(r.dgamma, f.dgamma, f.dgamma_scale), 1e-6) << rows;
      EXPECT_LE(max_error(r.dbeta, f.dbeta, f.dbeta_scale), 1e-6) << rows;
    });
  }
}

// Case LN-02: a one-pass variance loses all its digits here.
TEST(BatchNormKernelCases, LargeMeansKeepTheirSpread) {
  on_every_target([] {
    const std::vector<float> x{1000.01F, 1000.03F, 1000.02F, 1000.04F};
    std::vector<float> y(4), stats(3);
    std::vector<Moments> moments(1);
    const ColumnShape shape{4, 1};
    auto ws = nans<double>(column_workspace(shape));
    batch_norm_forward<float>(shape, 1e-5, x, {}, {}, y, moments, stats, ws);
    const std::vector<double> want{-1.2919627440363508, 0.4324066559424252, -0.4297780440469628,
                                   1.2893341321513903};
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(y[i], want[i], 1e-6);
    EXPECT_NEAR(moments[0].variance(), 0.0001247867476195097, 1e-10);
  });
}

TEST(BatchNormKernelErrors, ThrowBeforeAnythingIsWritten) {
  std::vector<float> x(12), y(12, 7.0F), stats(12, 7.0F), mean{1}, var{1};
  std::vector<Moments> moments(4);
  EXPECT_THROW(batch_norm_forward<float>({3, 4}, 1e-5, x, mean, {}, y, moments, stats, {}),
               ShapeError);
  EXPECT_THROW(batch_norm_forward<float>({3, 4}, 1e-5, x, {}, {}, y, moments, stats, {}),
               ShapeError);
  EXPECT_THAT(y, Each(7.0F));
  EXPECT_THAT(stats, Each(7.0F));
  const std::vector<Moments> one{{1, 5, 0}}, two{{2, 5, 1}};
  EXPECT_THROW(batch_norm_running_update<float>(one, 0.1, mean, var, mean, var), Error);
  EXPECT_THROW(batch_norm_running_update<float>(two, 1.5, mean, var, mean, var), Error);
  EXPECT_EQ(mean[0], 1.0F);
  EXPECT_EQ(var[0], 1.0F);
}

TEST(Moments, MergeInOrderToTheMomentsOfTheWhole) {
  const ColumnShape shape{901, 7};
  const auto p = problem<double>(shape, 1, 100);
  auto ws = nans<double>(column_workspace(shape));
  std::vector<Moments> whole(7), total(7), part(7);
  column_moments<double>(shape, p.x, whole, ws);
  std::int64_t row = 0;
  for (const std::int64_t rows : {400, 0, 1, 500}) {  // unequal and empty parts are legal
    const ColumnShape piece{rows, 7};
    auto room = nans<double>(column_workspace(piece));
    column_moments<double>(piece,
                           std::span<const double>(p.x).subspan(static_cast<std::size_t>(row * 7),
                                                                static_cast<std::size_t>(rows * 7)),
                           part, room);
    merge_moments(part, total);
    row += rows;
  }
  for (std::size_t c = 0; c < 7; ++c) {
    EXPECT_EQ(total[c].n, 901);
    EXPECT_NEAR(total[c].mean, whole[c].mean, 1e-12);
    EXPECT_NEAR(total[c].m2, whole[c].m2, 1e-10);
  }
  EXPECT_TRUE(std::isnan(Moments{}.variance()));
  EXPECT_TRUE(std::isnan((Moments{1, 3, 0}.unbiased_variance())));
}

struct Cotangents {
  std::vector<double> a, bg, bb;
};

double contracted_backward(const Problem<double>& p, const Cotangents& k) {
  const auto r = run(p);
  double sum = 0;
  for (std::size_t i = 0; i < k.a.size(); ++i) sum += k.a[i] * r.dx[i];
  for (std::size_t i = 0; i < k.bg.size(); ++i) sum += k.bg[i] * r.dgamma[i];
  for (std::size_t i = 0; i < k.bb.size(); ++i) sum += k.bb[i] * r.dbeta[i];
  return sum;
}

void expect_differences(Problem<double> p, std::vector<double> Problem<double>::*input,
                        const std::vector<double>& got, const Cotangents& k) {
  constexpr double Step = 1e-5;
  for (std::size_t i = 0; i < got.size(); ++i) {
    double& v = (p.*input)[i];
    const double before = v;
    v = before + Step;
    const double up = contracted_backward(p, k);
    v = before - Step;
    const double down = contracted_backward(p, k);
    v = before;
    EXPECT_NEAR(got[i], (up - down) / (2 * Step), 1e-7) << i;
  }
}

TEST(BatchNormDoubleBackward, IsTheDerivativeOfBackwardInBothModes) {
  for (const Mode mode : {Mode::Train, Mode::Frozen}) {
    for (int parts = 1; parts < 8; ++parts) {
      const ColumnShape shape{6, 3};
      auto p = problem<double>(shape, 1, 0.2, mode);
      p.eps = 0.3;  // large, so that a wrong place for it shows
      Noise noise(9);
      Cotangents k;
      if (parts & 1) k.a = noise.fill<double>(shape.elements());
      if (parts & 2) k.bg = noise.fill<double>(shape.channels);
      if (parts & 4) k.bb = noise.fill<double>(shape.channels);
      const auto r = run(p);
      auto ddy = nans<double>(shape.elements()), dx2 = ddy, dgamma2 = nans<double>(shape.channels);
      auto ws = nans<double>(column_workspace(shape));
      const auto function = mode == Mode::Train ? batch_norm_double_backward<double>
                                                : batch_norm_double_backward_frozen<double>;
      function(shape, p.x, p.dy, p.gamma, r.stats, k.a, k.bg, k.bb, ddy, dx2, dgamma2, ws);
      SCOPED_TRACE(fmt::format("mode {} parts {}", int(mode), parts));
      expect_differences(p, &Problem<double>::dy, ddy, k);
      expect_differences(p, &Problem<double>::x, dx2, k);
      expect_differences(p, &Problem<double>::gamma, dgamma2, k);
    }
  }
}

TEST(BatchNormDoubleBackward, GivesTheSameBitsForAnyNumberOfThreads) {
  const ColumnShape shape{20003, 16};
  const auto p = problem<float>(shape);
  const auto r = run(p);
  std::vector<float> first;
  with_threads([&](int threads) {
    auto ddy = nans<float>(shape.elements()), dx2 = ddy, dgamma2 = nans<float>(16);
    auto ws = nans<double>(column_workspace(shape));
    batch_norm_double_backward<float>(shape, p.x, p.dy, p.gamma, r.stats, p.dy, p.beta, {}, ddy,
                                      dx2, dgamma2, ws);
    dgamma2.insert(dgamma2.end(), dx2.begin(), dx2.end());
    dgamma2.insert(dgamma2.end(), ddy.begin(), ddy.end());
    if (threads == 1) first = dgamma2;
    EXPECT_EQ(dgamma2, first) << threads;
  });
}

}  // namespace
}  // namespace steady
