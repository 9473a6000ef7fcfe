#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/reduce.hpp>

#include "kernel_test.hpp"

namespace steady::kernels {
namespace {

using test::random_values;
using test::unwritten;
using Dims = std::vector<std::int64_t>;

std::int64_t numel(const Dims& dims) {
  std::int64_t n = 1;
  for (const std::int64_t d : dims) n *= d;
  return n;
}

Dims kept_dims(const Dims& dims, AxisMask mask) {
  Dims kept;
  for (std::size_t k = 0; k < dims.size(); ++k)
    if (((mask >> k) & 1U) == 0) kept.push_back(dims[k]);
  return kept;
}

/// Where element `index` of the input lands in the result.
std::size_t target(const Dims& dims, AxisMask mask, std::int64_t index) {
  std::int64_t at = 0;
  std::int64_t step = 1;
  for (std::size_t k = dims.size(); k-- > 0;) {
    const std::int64_t position = index % dims[k];
    index /= dims[k];
    if (((mask >> k) & 1U) != 0) continue;
    at += position * step;
    step *= dims[k];
  }
  return static_cast<std::size_t>(at);
}

struct Reduction {
  Dims dims;
  AxisMask mask;
};
const std::vector<Reduction> Reductions = {
    {{7}, 0b1},
    {{1000003}, 0b1},
    {{5, 301}, 0b10},
    {{301, 5}, 0b01},
    {{5, 301}, 0b11},
    {{5, 301}, 0b00},
    {{3, 40, 7}, 0b010},
    {{3, 40, 7}, 0b101},
    {{3, 1, 7}, 0b111},
    {{4, 3, 5, 2}, 0b0101},
    {{4, 3, 5, 2}, 0b1010},
    {{1, 3, 1}, 0b101},
    {{2, 9, 5000}, 0b11},
    {{700, 300}, 0b01},
    {{2, 2, 2, 2, 2, 2, 2, 2}, 0b10110101},
    {{}, 0},
    {{0, 3}, 0b01},
    {{3, 0}, 0b01},
};

template <class T>
void expect_sums(double relative) {
  for (const Reduction& c : Reductions) {
    const auto x = random_values<T>(numel(c.dims), 1, -1, 3);
    auto y = unwritten<T>(numel(kept_dims(c.dims, c.mask)));
    std::vector<long double> want(y.size());
    std::vector<long double> size(y.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t to = target(c.dims, c.mask, static_cast<std::int64_t>(i));
      want[to] += static_cast<long double>(x[i]);
      size[to] += std::abs(static_cast<long double>(x[i]));
    }
    sum<T>(x, c.dims, c.mask, y, 0.5);
    for (std::size_t i = 0; i < y.size(); ++i)
      ASSERT_NEAR(static_cast<double>(y[i]), static_cast<double>(want[i] / 2),
                  relative * static_cast<double>(size[i]))
          << "mask " << c.mask << " of rank " << c.dims.size();
  }
}

TEST(SumKernel, MatchesTheDefinitionForAnyAxes) {
  expect_sums<float>(1.5e-7);  // at most 7 roundings in blocks of 8, of random signs
  expect_sums<double>(1e-15);
}

TEST(SumKernel, LongFloatSumsStayAccurate) {
  // Adding 0.1F one by one in float32 is off by more than 1 % here.
  const std::vector<float> x(1 << 22, 0.1F);
  std::vector<float> y(1);
  sum<float>(x, Dims{1 << 22}, 1, y);
  EXPECT_NEAR(y[0], 0.1F * (1 << 22), 0.1);
  std::vector<float> columns(4);
  sum<float>(x, Dims{1 << 20, 4}, 1, columns);
  for (const float v : columns) EXPECT_NEAR(v, 0.1F * (1 << 20), 0.03);
}

TEST(SumKernel, AnyNumberOfThreadsGivesTheSameBits) {
  const auto x = random_values<float>(600000, 2);
  for (const Reduction& c : {Reduction{{600000}, 1}, Reduction{{15000, 40}, 0b01},
                             Reduction{{15000, 40}, 0b10}, Reduction{{3, 5000, 40}, 0b101},
                             Reduction{{120, 5000}, 0b01}, Reduction{{3, 5000, 40}, 0b010}}) {
    test::expect_thread_independent([&] {
      auto y = unwritten<float>(numel(kept_dims(c.dims, c.mask)));
      sum<float>(x, c.dims, c.mask, y);
      auto v = unwritten<float>(std::ssize(y));
      variance<float>(x, c.dims, c.mask, 1, v);
      y.insert(y.end(), v.begin(), v.end());
      return y;
    });
  }
}

TEST(SumKernel, RefusesWrongBuffersAndAxes) {
  const std::vector<float> x(6);
  std::vector<float> y(2);
  EXPECT_THROW(sum<float>(x, Dims{2, 3}, 0b01, y), Error);
  EXPECT_THROW(sum<float>(x, Dims{2, 3}, 0b110, y), Error);
  EXPECT_THROW(sum<float>(x, Dims{2, 2}, 0b10, y), Error);
}

TEST(SumToKernel, ReversesBroadcasting) {
  const Dims from{4, 5, 3};
  const auto x = random_values<double>(60, 3);
  for (const Dims& to : {Dims{4, 5, 3}, Dims{3}, Dims{1}, Dims{}, Dims{5, 1}, Dims{4, 1, 3}}) {
    AxisMask mask = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      const bool missing = k + to.size() < 3;
      if (missing || to[k + to.size() - 3] != from[k]) mask |= AxisMask{1} << k;
    }
    std::vector<double> want(static_cast<std::size_t>(numel(to)));
    for (std::size_t i = 0; i < x.size(); ++i)
      want[target(from, mask, static_cast<std::int64_t>(i))] += x[i];
    auto y = unwritten<double>(numel(to));
    sum_to<double>(x, from, y, to);
    test::expect_near(y, want, 1e-13);
  }
  std::vector<double> y(2);
  EXPECT_THROW(sum_to<double>(x, from, y, Dims{2}), ShapeError);
}

TEST(AmaxKernel, MatchesTheDefinitionAndSharesTies) {
  for (const Reduction& c : Reductions) {
    if (reduced_count(c.dims, c.mask) == 0) continue;
    auto x = random_values<float>(numel(c.dims), 4, -40, 40);
    for (float& v : x) v = std::round(v);  // ties
    auto y = unwritten<float>(numel(kept_dims(c.dims, c.mask)));
    amax<float>(x, c.dims, c.mask, y);
    auto w = unwritten<float>(std::ssize(x));
    amax_weights<float>(x, c.dims, c.mask, y, w);
    std::vector<float> best(y.size(), -1000);
    std::vector<int> ties(y.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      float& b = best[target(c.dims, c.mask, static_cast<std::int64_t>(i))];
      b = std::max(b, x[i]);
    }
    EXPECT_EQ(y, best);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t to = target(c.dims, c.mask, static_cast<std::int64_t>(i));
      ties[to] += x[i] == best[to] ? 1 : 0;
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t to = target(c.dims, c.mask, static_cast<std::int64_t>(i));
      ASSERT_EQ(w[i], x[i] == best[to] ? 1.0F / static_cast<float>(ties[to]) : 0.0F);
    }
  }
}

TEST(AmaxKernel, NanWinsAndTakesTheGradient) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {1, nan, 3, 4, 5, 6};
  std::vector<float> y(2);
  std::vector<float> w(6);
  amax<float>(x, Dims{2, 3}, 0b10, y);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], 6);
  amax_weights<float>(x, Dims{2, 3}, 0b10, y, w);
  EXPECT_EQ(w, (std::vector<float>{0, 1, 0, 0, 0, 1}));
  std::vector<std::int64_t> index(2);
  argmax<float>(x, 2, 3, 1, index);
  EXPECT_EQ(index, (std::vector<std::int64_t>{1, 2}));
  EXPECT_THROW(amax<float>({}, Dims{2, 0}, 0b10, y), Error);
}

TEST(ArgmaxKernel, TakesTheFirstOfEqualValuesAlongAnyAxis) {
  const std::vector<float> x = {1, 5, 5, 2, 2, 2};
  std::vector<std::int64_t> index(2, -1);
  argmax<float>(x, 2, 3, 1, index);
  EXPECT_EQ(index, (std::vector<std::int64_t>{1, 0}));
  argmax<float>(x, 1, 3, 2, index);  // columns of [[1, 5], [5, 2], [2, 2]]
  EXPECT_EQ(index, (std::vector<std::int64_t>{1, 0}));
}

TEST(VarianceKernel, SurvivesALargeMean) {
  for (const Reduction& c : Reductions) {
    const std::int64_t n = reduced_count(c.dims, c.mask);
    if (n < 2) continue;
    auto x = random_values<float>(numel(c.dims), 5, 1e4 - 1, 1e4 + 1);
    auto y = unwritten<float>(numel(kept_dims(c.dims, c.mask)));
    std::vector<double> mean(y.size());
    std::vector<double> want(y.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      mean[target(c.dims, c.mask, static_cast<std::int64_t>(i))] +=
          static_cast<double>(x[i]) / static_cast<double>(n);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t to = target(c.dims, c.mask, static_cast<std::int64_t>(i));
      const double d = static_cast<double>(x[i]) - mean[to];
      want[to] += d * d;
    }
    for (const int correction : {0, 1}) {
      variance<float>(x, c.dims, c.mask, correction, y);
      for (std::size_t i = 0; i < y.size(); ++i) {
        const double value = want[i] / static_cast<double>(n - correction);
        // Eight values near 1e4 summed in float are 4e-3 off, the mean of n of them less.
        ASSERT_NEAR(static_cast<double>(y[i]), value, 2e-6 + 2e-6 * value);
      }
    }
  }
  std::vector<float> y(1);
  variance<float>(std::vector<float>{3}, Dims{1}, 1, 1, y);
  EXPECT_TRUE(std::isnan(y[0]));
  variance<float>(std::vector<float>{3}, Dims{1}, 1, 0, y);
  EXPECT_EQ(y[0], 0);
}

TEST(NormKernel, SumOfSquaresAndMaximum) {
  const auto x = random_values<float>(100003, 6, -3, 2);
  long double want = 0;
  for (const float v : x) want += static_cast<long double>(v) * static_cast<long double>(v);
  EXPECT_NEAR(sum_squares<float>(x), static_cast<double>(want), 1e-12 * static_cast<double>(want));
  EXPECT_LT(max_abs<float>(x), 3.0001);
  EXPECT_GT(max_abs<float>(x), 2.99);
  EXPECT_EQ(sum_squares<float>(std::vector<float>{1e30F, 1e30F}), 2 * std::pow(1e30F * 1.0, 2));

  auto bad = x;
  bad[5] = std::numeric_limits<float>::infinity();
  bad[50000] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(max_abs<float>(bad), std::numeric_limits<double>::infinity());
  bad[99999] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(max_abs<float>(bad)));
  EXPECT_FALSE(std::isfinite(sum_squares<float>(bad)));
}

// A fault on purpose: `tests/run.sh --sanitize` asks AddressSanitizer for it first.
TEST(SumKernel, DISABLED_ReadsBeyondTheEnd) {
  const std::vector<float> x(1000, 1);
  EXPECT_GT(sum_squares(std::span<const float>(x.data(), x.size() + 1)), 0);
}

}  // namespace
}  // namespace steady::kernels
