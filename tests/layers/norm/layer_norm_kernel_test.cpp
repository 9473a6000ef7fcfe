#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/layer_norm_kernel.hpp>

#include "kernel_testing.hpp"

namespace steady {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::for_each_row_sweep;
using testing::max_error;
using testing::nans;
using testing::Noise;
using testing::on_every_target;
using testing::with_threads;

template <class T>
struct Problem {
  RowShape shape;
  double eps = 1e-5;
  std::vector<T> x, dy, gamma, beta;
};

template <class T>
Problem<T> problem(const RowShape& shape, double scale = 1, double offset = 0,
                   std::uint64_t seed = 1) {
  Noise noise(seed);
  return {shape,
          1e-5,
          noise.fill<T>(shape.elements(), scale, offset),
          noise.fill<T>(shape.elements()),
          noise.fill<T>(shape.affine),
          noise.fill<T>(shape.affine)};
}

template <class T>
struct Result {
  std::vector<T> y, stats, dx, dgamma, dbeta;
  bool operator==(const Result&) const = default;
};

template <class T>
Result<T> run(const Problem<T>& p) {
  const RowShape& s = p.shape;
  Result<T> r{nans<T>(s.elements()), nans<T>(3 * s.rows), nans<T>(s.elements()), nans<T>(s.affine),
              nans<T>(s.affine)};
  auto workspace = nans<T>(layer_norm_workspace(s));
  layer_norm_forward<T>(s, p.eps, p.x, p.gamma, p.beta, r.y, r.stats);
  layer_norm_backward<T>(s, p.x, p.dy, p.gamma, r.stats, r.dx, r.dgamma, r.dbeta, workspace);
  return r;
}

// The two-pass formula in long double, and beside each value the size of the terms it is made of:
// what rounding errors are measured against.
struct Reference {
  std::vector<double> y, dx, dgamma, dbeta;
  std::vector<double> y_scale, dx_scale, dgamma_scale, dbeta_scale;
};

template <class T>
Reference reference(const Problem<T>& p) {
  using Real = long double;
  const auto width = static_cast<std::size_t>(p.shape.width);
  const auto affine = static_cast<std::size_t>(p.shape.affine);
  const auto n = static_cast<Real>(width);
  Reference f;
  f.y = f.dx = f.y_scale = f.dx_scale = std::vector<double>(p.x.size());
  f.dgamma = f.dbeta = f.dgamma_scale = f.dbeta_scale = std::vector<double>(affine);
  std::vector<Real> dgamma(affine), dbeta(affine), xhat(width), w(width);
  for (std::size_t at = 0; at < p.x.size(); at += width) {
    Real mean = 0, var = 0, s1 = 0, s2 = 0, size1 = 0, size2 = 0;
    for (std::size_t i = 0; i < width; ++i) {
      xhat[i] = static_cast<Real>(p.x[at + i]) - p.x[at];  // exact: a large mean costs no digits
      mean += xhat[i] / n;
    }
    for (std::size_t i = 0; i < width; ++i) var += (xhat[i] - mean) * (xhat[i] - mean) / n;
    const Real r = 1 / std::sqrt(var + static_cast<Real>(p.eps));
    const Real spread = std::sqrt(var) * r;
    for (std::size_t i = 0; i < width; ++i) {
      xhat[i] = (xhat[i] - mean) * r;
      w[i] = static_cast<Real>(p.dy[at + i]) * p.gamma[i % affine];
      s1 += w[i] / n;
      s2 += w[i] * xhat[i] / n;
      size1 += std::abs(w[i]) / n;
      size2 += std::abs(w[i]) * (std::abs(xhat[i]) + spread) / n;
    }
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t c = i % affine;
      const Real u = p.dy[at + i];
      const Real size = std::abs(xhat[i]) + spread;
      f.y[at + i] = static_cast<double>(xhat[i] * p.gamma[c] + p.beta[c]);
      f.y_scale[at + i] = static_cast<double>(size * std::abs(p.gamma[c]) + std::abs(p.beta[c]));
      f.dx[at + i] = static_cast<double>(r * (w[i] - s1 - xhat[i] * s2));
      f.dx_scale[at + i] = static_cast<double>(r * (std::abs(w[i]) + size1 + size * size2));
      dgamma[c] += u * xhat[i];
      dbeta[c] += u;
      f.dgamma_scale[c] += static_cast<double>(std::abs(u) * size);
      f.dbeta_scale[c] += static_cast<double>(std::abs(u));
    }
  }
  f.dgamma.assign(dgamma.begin(), dgamma.end());
  f.dbeta.assign(dbeta.begin(), dbeta.end());
  return f;
}

// A handful of roundings per value, and the partial sums over at most 64 rows.
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
class LayerNormKernel : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(LayerNormKernel, Types);

// The class test of CASES group LN.
TYPED_TEST(LayerNormKernel, IsAFewUlpsFromTheTwoPassFormulaForEveryShapeOffsetAndScale) {
  for_each_row_sweep<TypeParam>([](const RowShape& shape, double offset, double scale) {
    const auto p = problem<TypeParam>(shape, scale, offset);
    const Reference f = reference(p);
    on_every_target([&] { expect_close(run(p), f); });
  });
}

TYPED_TEST(LayerNormKernel, SharesOneStatisticOverPositionsWithAGainPerChannel) {
  for (const RowShape& shape : {RowShape{3, 49 * 5, 5}, RowShape{2, 12, 12}, RowShape{4, 6000, 600},
                                RowShape{2, 9000, 3000}, RowShape{3, 64, 1}}) {
    const auto p = problem<TypeParam>(shape, 1, 100);
    const Reference f = reference(p);
    on_every_target([&] {
      SCOPED_TRACE(fmt::format("width {} affine {}", shape.width, shape.affine));
      expect_close(run(p), f);
    });
  }
}

TYPED_TEST(LayerNormKernel, GivesTheSameBitsForAnyNumberOfThreads) {
  for (const RowShape& shape : {RowShape{1025, 96, 96}, RowShape{70001, 5, 5},
                                RowShape{67, 3000, 3000}, RowShape{9, 16384, 16}}) {
    const auto p = problem<TypeParam>(shape);
    Result<TypeParam> first;
    with_threads([&](int threads) {
      const auto r = run(p);
      if (threads == 1) first = r;
      EXPECT_TRUE(r == first) << threads << " threads, " << shape.rows << " rows";
    });
  }
}

TYPED_TEST(LayerNormKernel, GivesARowTheSameBitsWhereverItLies) {
  for (const std::int64_t width : {211, 2061}) {
    const auto step = static_cast<std::size_t>(width);
    auto p = problem<TypeParam>({701, width, width}, 1, 50);
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

TYPED_TEST(LayerNormKernel, ReadsAndWritesUnalignedMemoryAndNothingBeside) {
  const auto p = problem<TypeParam>({5, 37, 37});
  const auto want = run(p);
  on_every_target([&] {
    const auto target = run(p);
    for (std::size_t shift = 1; shift < 4; ++shift) {
      std::vector<TypeParam> x(p.x.size() + 8, TypeParam(7)), y(p.x.size() + 8, TypeParam(7));
      std::copy(p.x.begin(), p.x.end(), x.begin() + static_cast<std::ptrdiff_t>(shift));
      const std::span<TypeParam> out(y);
      layer_norm_forward<TypeParam>(p.shape, p.eps,
                                    std::span<const TypeParam>(x).subspan(shift, p.x.size()),
                                    p.gamma, p.beta, out.subspan(shift, p.x.size()), {});
      for (std::size_t i = 0; i < y.size(); ++i) {
        const bool inside = i >= shift && i < shift + p.x.size();
        ASSERT_EQ(y[i], inside ? target.y[i - shift] : TypeParam(7)) << i;
      }
    }
  });
}

TYPED_TEST(LayerNormKernel, LeavesInputsAsTheyWere) {
  const auto p = problem<TypeParam>({70, 33, 33});
  const auto copy = p;
  run(p);
  EXPECT_EQ(p.x, copy.x);
  EXPECT_EQ(p.dy, copy.dy);
  EXPECT_EQ(p.gamma, copy.gamma);
  EXPECT_EQ(p.beta, copy.beta);
}

TYPED_TEST(LayerNormKernel, TreatsAbsentSpansAsGainOneShiftZeroAndUnwantedOutputs) {
  using T = TypeParam;
  auto p = problem<T>({66, 45, 45});
  auto ones = p;
  ones.gamma.assign(45, T(1));
  ones.beta.assign(45, T(0));
  const auto want = run(ones);
  on_every_target([&] {
    const auto full = run(ones);
    auto y = nans<T>(p.shape.elements()), dx = y, stats = nans<T>(3 * 66);
    auto dgamma = nans<T>(45), dbeta = dgamma, ws = nans<T>(layer_norm_workspace(p.shape));
    layer_norm_forward<T>(p.shape, p.eps, p.x, {}, {}, y, stats);
    EXPECT_EQ(y, full.y);
    layer_norm_backward<T>(p.shape, p.x, p.dy, {}, stats, dx, {}, {}, ws);
    EXPECT_EQ(dx, full.dx);
    layer_norm_backward<T>(p.shape, p.x, p.dy, {}, stats, {}, dgamma, {}, ws);
    EXPECT_EQ(dgamma, full.dgamma);
    layer_norm_backward<T>(p.shape, p.x, p.dy, {}, stats, {}, {}, dbeta, ws);
    EXPECT_EQ(dbeta, full.dbeta);
  });
}

TYPED_TEST(LayerNormKernel, AcceptsNoRows) {
  using T = TypeParam;
  std::vector<T> gamma(4, T(2)), dgamma = nans<T>(4), dbeta = nans<T>(4), none;
  const RowShape shape{0, 4, 4};
  EXPECT_EQ(layer_norm_workspace(shape), 0);
  layer_norm_forward<T>(shape, 1e-5, {}, gamma, gamma, none, none);
  layer_norm_backward<T>(shape, {}, {}, gamma, {}, {}, dgamma, dbeta, {});
  EXPECT_THAT(dgamma, Each(T(0)));
  EXPECT_THAT(dbeta, Each(T(0)));
}

TYPED_TEST(LayerNormKernel, GivesOneFeatureItsShiftAndNoGradient) {
  const auto p = problem<TypeParam>({5, 1, 1});
  on_every_target([&] {
    const auto r = run(p);
    EXPECT_THAT(r.y, Each(p.beta[0]));
    EXPECT_THAT(r.dx, Each(TypeParam(0)));
    EXPECT_EQ(r.dgamma[0], TypeParam(0));
  });
}

// Case LN-01: E[x^2] - mean^2 gives -128 for the variance of the first row.
TEST(LayerNormKernelCases, LargeMeansKeepTheirSpread) {
  on_every_target([] {
    std::vector<float> x{40000, 40001, 40002, 40003}, y(4), ramp(16), out(16);
    layer_norm_forward<float>({1, 4, 4}, 1e-5, x, {}, {}, y, {});
    EXPECT_NEAR(y[0], -1.34163542, 1e-6);
    EXPECT_NEAR(y[1], -0.44721181, 1e-6);
    EXPECT_NEAR(y[2], 0.44721181, 1e-6);
    EXPECT_NEAR(y[3], 1.34163542, 1e-6);
    for (int i = 0; i < 16; ++i)
      ramp[static_cast<std::size_t>(i)] = static_cast<float>(1e4 + i * 1e-3);
    layer_norm_forward<float>({1, 16, 16}, 1e-5, ramp, {}, {}, out, {});
    EXPECT_NEAR(out[0], -1.3313333517917272, 1e-6);
    EXPECT_NEAR(out[15], 1.3313333516727044, 1e-6);
  });
}

// Case LN-03: a constant row is exactly its bias and gives the gain exactly no gradient.
TEST(LayerNormKernelCases, ConstantRowsAreExactlyTheBias) {
  on_every_target([] {
    const std::vector<float> x(4, 1e6F), w{1, 2, 3, 4}, b(4, 0.5F), dy{1, 0, 0, -2};
    std::vector<float> y(4), stats(3), dx(4), dw(4), db(4), ws(8);
    const RowShape shape{1, 4, 4};
    ASSERT_EQ(layer_norm_workspace(shape), 8);
    layer_norm_forward<float>(shape, 1e-5, x, w, b, y, stats);
    layer_norm_backward<float>(shape, x, dy, w, stats, dx, dw, db, ws);
    EXPECT_THAT(y, Each(0.5F));
    EXPECT_THAT(dw, Each(0.0F));
    EXPECT_THAT(db, ElementsAre(1.0F, 0.0F, 0.0F, -2.0F));
    const std::vector<double> want{869.6263565463042, 553.3985905294663, 553.3985905294663,
                                   -1976.423537605237};
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(dx[i], want[i], 1e-6 * 2000);
  });
}

TYPED_TEST(LayerNormKernel, GivesConstantRowsOfAnyWidthAndValueExactlyTheBias) {
  using T = TypeParam;
  for (const std::int64_t width : {2, 3, 7, 17, 100, 4099}) {
    for (const double value : {0.1, 1e4 / 3, -1e6 / 7, 3e7}) {
      auto p = problem<T>({3, width, width});
      p.x.assign(p.x.size(), static_cast<T>(value));
      on_every_target([&] {
        const auto r = run(p);
        for (std::size_t i = 0; i < r.y.size(); ++i) {
          ASSERT_EQ(r.y[i], p.beta[i % static_cast<std::size_t>(width)]) << width << " " << value;
        }
        ASSERT_THAT(r.dgamma, Each(T(0))) << width << " " << value;
      });
    }
  }
}

TYPED_TEST(LayerNormKernel, PassesNanAndInfinityOnWithinTheirRowOnly) {
  using T = TypeParam;
  for (const T bad : {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity()}) {
    auto p = problem<T>({3, 50, 50});
    const auto clean = run(p);
    p.x[50 + 20] = bad;
    on_every_target([&] {
      const auto r = run(p);
      for (std::size_t i = 0; i < r.y.size(); ++i) {
        EXPECT_EQ(std::isnan(r.y[i]), i / 50 == 1) << i;
        EXPECT_EQ(std::isnan(r.dx[i]), i / 50 == 1) << i;
      }
      EXPECT_TRUE(std::isnan(r.dgamma[3]));
    });
  }
}

// Equal terms round in one direction only. Rows of 24 are short, those of 1100 wide.
TEST(LayerNormKernelCases, ParameterGradientsOfManyEqualRowsKeepTheirDigits) {
  for (const std::int64_t width : {24, 1100}) {
    auto p = problem<float>({2048, width, width});
    std::ranges::fill(p.dy, 0.1F);
    const double want = 2048 * static_cast<double>(0.1F);
    on_every_target([&] {
      for (const float dbeta : run(p).dbeta) ASSERT_NEAR(dbeta, want, 1e-6 * want) << width;
    });
  }
}

// Case LN-19: unfinished tails and partial sums of dgamma and dbeta show at these row counts.
TEST(LayerNormKernelCases, ParameterGradientsEqualTheSumForEveryRowCount) {
  for (const std::int64_t rows : {1, 63, 64, 65, 1025, 70001}) {
    const auto p = problem<float>({rows, 5, 5});
    const Reference f = reference(p);
    on_every_target([&] {
      const auto r = run(p);
      EXPECT_LE(max_error(r.dgamma, f.dgamma, f.dgamma_scale), 1e-6) << rows;
      EXPECT_LE(max_error(r.dbeta, f.dbeta, f.dbeta_scale), 1e-6) << rows;
    });
  }
}

// Case RT-13: 32 bits would give 65536 elements.
TEST(LayerNormKernelCases, CountsElementsIn64Bits) {
  EXPECT_EQ((RowShape{65536, 65537, 65537}.elements()), 4295032832);
}

TEST(LayerNormKernelErrors, WrongSizesThrowBeforeAnythingIsWritten) {
  std::vector<float> x(12), y(12, 7.0F), gamma(4), short_gamma(3), stats(9);
  EXPECT_THROW(layer_norm_forward<float>({3, 4, 4}, 1e-5, x, short_gamma, {}, y, stats),
               ShapeError);
  EXPECT_THROW(layer_norm_forward<float>({3, 4, 3}, 1e-5, x, short_gamma, {}, y, stats),
               ShapeError);
  EXPECT_THROW(layer_norm_forward<float>({4, 4, 4}, 1e-5, x, gamma, {}, y, stats), ShapeError);
  EXPECT_THROW(layer_norm_backward<float>({3, 4, 4}, x, x, gamma, stats, y, {}, {}, {}),
               ShapeError);
  EXPECT_THAT(y, Each(7.0F));
}

// The second derivative against central differences of <dx, a> + <dgamma, bg> + <dbeta, bb>.
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

TEST(LayerNormDoubleBackward, IsTheDerivativeOfBackward) {
  for (const RowShape& shape : {RowShape{3, 5, 5}, RowShape{2, 12, 3}, RowShape{4, 1, 1}}) {
    for (int parts = 1; parts < 8; ++parts) {
      auto p = problem<double>(shape);
      p.eps = 0.3;  // large, so that a wrong place for it shows
      Noise noise(9);
      Cotangents k;
      if (parts & 1) k.a = noise.fill<double>(shape.elements());
      if (parts & 2) k.bg = noise.fill<double>(shape.affine);
      if (parts & 4) k.bb = noise.fill<double>(shape.affine);
      const auto r = run(p);
      auto ddy = nans<double>(shape.elements()), dx2 = ddy, dgamma2 = nans<double>(shape.affine);
      auto ws = nans<double>(layer_norm_workspace(shape));
      layer_norm_double_backward<double>(shape, p.x, p.dy, p.gamma, r.stats, k.a, k.bg, k.bb, ddy,
                                         dx2, dgamma2, ws);
      SCOPED_TRACE(fmt::format("width {} affine {} parts {}", shape.width, shape.affine, parts));
      expect_differences(p, &Problem<double>::dy, ddy, k);
      expect_differences(p, &Problem<double>::x, dx2, k);
      expect_differences(p, &Problem<double>::gamma, dgamma2, k);
    }
  }
}

TEST(LayerNormDoubleBackward, GivesTheSameBitsForAnyNumberOfThreads) {
  const RowShape shape{1025, 96, 96};
  const auto p = problem<float>(shape);
  const auto r = run(p);
  std::vector<float> first;
  with_threads([&](int threads) {
    auto ddy = nans<float>(shape.elements()), dx2 = ddy, dgamma2 = nans<float>(96);
    auto ws = nans<float>(layer_norm_workspace(shape));
    layer_norm_double_backward<float>(shape, p.x, p.dy, p.gamma, r.stats, p.dy, p.beta, {}, ddy,
                                      dx2, dgamma2, ws);
    dgamma2.insert(dgamma2.end(), dx2.begin(), dx2.end());
    if (threads == 1) first = dgamma2;
    EXPECT_EQ(dgamma2, first) << threads;
  });
}

}  // namespace
}  // namespace steady
