#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <steadygrad/core/kernels/tensor_stats.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/core/stats.hpp>
#include <vector>

#include "tests/support/message_of.hpp"

namespace steady {
namespace {

constexpr double Infinity = std::numeric_limits<double>::infinity();
constexpr double NaN = std::numeric_limits<double>::quiet_NaN();

/// The definitions, in double and one after the other.
template <class T>
TensorStats direct(const std::vector<T>& x) {
  TensorStats s;
  s.count = std::ssize(x);
  double finite = 0;
  double zeros = 0;
  double square = 0;
  for (const T& v : x) {
    zeros += v == T(0) ? 1 : 0;
    if (!std::isfinite(v)) continue;
    const double d = v;
    ++finite;
    s.mean += d;
    square += d * d;
    s.max_abs = std::max(s.max_abs, std::abs(d));
    const auto block = (&v - x.data()) / kernels::StatsBlock;
    const bool counted = s.count <= kernels::CountedWhole || kernels::counts_block(block);
    if (d == 0 || !counted) continue;
    const int bin = std::ilogb(d) - TensorStats::LowestExponent;
    ++s.histogram[static_cast<std::size_t>(std::clamp(bin, 0, TensorStats::Bins - 1))];
  }
  s.mean /= finite;
  s.rms = std::sqrt(square / finite);
  double m2 = 0;
  for (const T v : x) {
    if (std::isfinite(v)) m2 += (double(v) - s.mean) * (double(v) - s.mean);
  }
  s.std = std::sqrt(m2 / finite);
  s.zeros = zeros / double(x.size());
  s.non_finite = 1 - finite / double(x.size());
  return s;
}

/// Of the given size: normal numbers with some zeros, tiny, huge, infinite and NaN ones among them.
template <class T>
std::vector<T> sample(std::int64_t n, double mean, double spread, bool odd) {
  Random random(3, "stats");
  std::vector<T> x;
  for (std::int64_t i = 0; i < n; ++i) {
    double v = mean + spread * random.normal();
    if (odd && i % 7 == 3) v = 0;
    if (odd && i % 11 == 5) v *= std::exp2(double(i % 60) - 30);
    if (odd && i % 29 == 1) v = i % 2 == 0 ? -Infinity : NaN;
    x.push_back(static_cast<T>(v));
  }
  return x;
}

template <class T>
void expect_direct(const std::vector<T>& x, double tolerance) {
  const Tensor t = Tensor::from<T>({std::ssize(x)}, std::span<const T>(x));
  const TensorStats got = tensor_stats(t);
  const TensorStats want = direct(x);
  SCOPED_TRACE(x.size());
  EXPECT_EQ(got.count, want.count);
  EXPECT_NEAR(got.mean, want.mean, tolerance * want.rms);
  EXPECT_NEAR(got.std, want.std, tolerance * want.std);
  EXPECT_NEAR(got.rms, want.rms, tolerance * want.rms);
  EXPECT_EQ(got.max_abs, want.max_abs);
  EXPECT_DOUBLE_EQ(got.zeros, want.zeros);
  EXPECT_NEAR(got.non_finite, want.non_finite, 1e-15);
  EXPECT_EQ(got.histogram, want.histogram);
}

TEST(TensorStats, AgreesWithTheDefinitionsForEverySize) {
  // 1e-12: sums of up to 1e5 doubles; below 33 every remainder of the vectors.
  for (std::int64_t n = 2; n < 33; ++n) {
    expect_direct(sample<float>(n, 0.3, 1, n > 4), 1e-12);
    expect_direct(sample<double>(n, 0.3, 1, n > 4), 1e-12);
  }
  for (const std::int64_t n : {1000, 32768, 32769, 100003}) {
    expect_direct(sample<float>(n, 0.3, 1, true), 1e-12);
    expect_direct(sample<double>(n, 0.3, 1, true), 1e-12);
  }
}

TEST(TensorStats, KeepsTheSpreadBesideALargeMean) {
  // Sums of squares about zero would leave about 1e-6 of the spread in double.
  expect_direct(sample<float>(50000, 1e5, 1, false), 1e-10);
  expect_direct(sample<double>(50000, 1e8, 1, false), 1e-10);
}

TEST(TensorStats, HistogramAddsUpAndItsEndsTakeTheRest) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const std::vector<float> x{tiny, -1e-30F, 0.0F, -0.0F, 1.0F, -1.5F, 2.0F, 3e38F, float(NaN)};
  const TensorStats s = tensor_stats(Tensor::from<float>({9}, std::span<const float>(x)));
  EXPECT_EQ(s.histogram[0], 2);
  EXPECT_EQ(s.histogram[64], 2);  // 1 and 1.5
  EXPECT_EQ(s.histogram[65], 1);
  EXPECT_EQ(s.histogram[95], 1);
  EXPECT_EQ(std::accumulate(s.histogram.begin(), s.histogram.end(), std::int64_t{0}), 6);
  EXPECT_DOUBLE_EQ(s.zeros, 2.0 / 9);
  EXPECT_DOUBLE_EQ(s.non_finite, 1.0 / 9);
}

TEST(TensorStats, TheHistogramOfALargeTensorIsOfAQuarterInEveryColumn) {
  for (const std::int64_t columns : {32, 64, 100, 256, 1024}) {
    std::vector<int> counted(static_cast<std::size_t>(columns));
    constexpr std::int64_t Elements = 1 << 20;
    for (std::int64_t i = 0; i < Elements; ++i) {
      if (kernels::counts_block(i / kernels::StatsBlock)) ++counted[std::size_t(i % columns)];
    }
    const double expected = 0.25 * double(Elements) / double(columns);
    for (const int n : counted) EXPECT_NEAR(n, expected, 0.1 * expected);
  }
  const TensorStats s = tensor_stats(Tensor::ones({1 << 20}));
  EXPECT_NEAR(double(s.histogram[64]), 1 << 18, 0.01 * (1 << 18));
}

TEST(TensorStats, NothingFiniteAndNothingAtAll) {
  const TensorStats none = tensor_stats(Tensor::full({40}, NaN));
  EXPECT_EQ(none.non_finite, 1.0);
  EXPECT_TRUE(std::isnan(none.mean) && std::isnan(none.std) && std::isnan(none.rms));
  EXPECT_TRUE(std::isnan(none.max_abs));
  const TensorStats empty = tensor_stats(Tensor::empty({0, 3}));
  EXPECT_EQ(empty.count, 0);
  EXPECT_EQ(empty.non_finite, 0.0);
  EXPECT_TRUE(std::isnan(empty.mean));
}

TEST(TensorStats, TheSameBitsForAnyNumberOfThreads) {
  const std::vector<float> x = sample<float>(300001, 2, 1, true);
  const Tensor t = Tensor::from<float>({300001}, std::span<const float>(x));
  const int before = num_threads();
  set_num_threads(1);
  const TensorStats one = tensor_stats(t);
  const double angle = cosine(t, t);
  for (const int threads : {2, 3, 8}) {
    set_num_threads(threads);
    const TensorStats more = tensor_stats(t);
    EXPECT_EQ(one.mean, more.mean);
    EXPECT_EQ(one.std, more.std);
    EXPECT_EQ(one.rms, more.rms);
    EXPECT_EQ(one.histogram, more.histogram);
    EXPECT_TRUE(std::isnan(angle) && std::isnan(cosine(t, t)));
  }
  set_num_threads(before);
}

TEST(TensorStats, OfADifference) {
  const Tensor a = Tensor::of({4}, {3, 1, -2, 5}, Dtype::F64);
  const Tensor b = Tensor::of({4}, {1, 1, 2, 4}, Dtype::F64);
  const TensorStats s = difference_stats(a, b);
  EXPECT_DOUBLE_EQ(s.mean, -0.25);
  EXPECT_DOUBLE_EQ(s.rms, std::sqrt(21.0 / 4));
  EXPECT_DOUBLE_EQ(s.max_abs, 4);
  EXPECT_DOUBLE_EQ(s.zeros, 0.25);
}

TEST(TensorStats, CosineOfTwoTensors) {
  const Tensor a = Tensor::of({3}, {1, 2, 2});
  EXPECT_DOUBLE_EQ(cosine(a, Tensor::of({3}, {2, 4, 4})), 1);
  EXPECT_DOUBLE_EQ(cosine(a, Tensor::of({3}, {-1, -2, -2})), -1);
  EXPECT_DOUBLE_EQ(cosine(a, Tensor::of({3}, {2, 1, -2})), 0);
  EXPECT_DOUBLE_EQ(cosine(a, Tensor::of({3}, {0, 0, 3})), 2.0 / 3);
  EXPECT_TRUE(std::isnan(cosine(a, Tensor::zeros({3}))));
  EXPECT_TRUE(std::isnan(cosine(a, Tensor::full({3}, Infinity))));
}

TEST(TensorStats, CosineOfManyElementsAgreesWithTheDefinition) {
  const std::vector<double> u = sample<double>(70001, 0.1, 1, false);
  std::vector<double> v = sample<double>(70001, 0, 1, false);
  std::rotate(v.begin(), v.begin() + 17, v.end());
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (std::size_t i = 0; i < u.size(); ++i) {
    ab += u[i] * v[i];
    aa += u[i] * u[i];
    bb += v[i] * v[i];
  }
  const double got = cosine(Tensor::from<double>({70001}, std::span<const double>(u)),
                            Tensor::from<double>({70001}, std::span<const double>(v)));
  EXPECT_NEAR(got, ab / std::sqrt(aa * bb), 1e-14);
}

TEST(TensorStats, PowerSumsAgreeWithTheDefinition) {
  const std::vector<float> x = sample<float>(40007, 0.2, 1, false);
  std::array<double, 4> want{};
  for (const float v : x) {
    for (int k = 0; k < 4; ++k) want[static_cast<std::size_t>(k)] += std::pow(double(v), k + 1);
  }
  const std::array<double, 4> got = kernels::power_sums<float>(x);
  for (std::size_t k = 0; k < 4; ++k) EXPECT_NEAR(got[k], want[k], 1e-8);  // sums around 1e5
}

TEST(TensorStats, RefusesWhatHasNoStatistics) {
  using testing_support::message_of;
  EXPECT_EQ(message_of([] { (void)tensor_stats(Tensor::zeros({2}, Dtype::I64)); }),
            "tensor_stats: needs f32 or f64; got i64");
  EXPECT_EQ(message_of([] { (void)cosine(Tensor::zeros({2}), Tensor::zeros({3})); }),
            "cosine: needs two tensors of one shape and dtype; got a f32 [2], b f32 [3]");
  EXPECT_EQ(message_of(
                [] { (void)difference_stats(Tensor::zeros({2}), Tensor::zeros({2}, Dtype::F64)); }),
            "difference_stats: needs two tensors of one shape and dtype; got a f32 [2], b f64 [2]");
}

}  // namespace
}  // namespace steady
