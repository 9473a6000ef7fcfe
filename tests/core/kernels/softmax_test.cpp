#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/softmax.hpp>

#include "kernel_test.hpp"

namespace steady::kernels {
namespace {

using test::random_values;
using test::unwritten;

constexpr float Inf = std::numeric_limits<float>::infinity();

struct Size {
  std::int64_t rows, width;
};
const std::vector<Size> Sizes = {{1, 1}, {3, 2}, {5, 7}, {4, 8}, {3, 33}, {2, 5003}, {700, 67}};

/// softmax, its logarithm and both backwards in long double.
struct Reference {
  std::vector<double> y, log_y, dx, log_dx;
  template <class T>
  Reference(const std::vector<T>& x, const std::vector<T>& dy, Size size)
      : y(x.size()), log_y(x.size()), dx(x.size()), log_dx(x.size()) {
    const auto width = static_cast<std::size_t>(size.width);
    for (std::size_t at = 0; at < x.size(); at += width) {
      long double best = x[at], total = 0, dot = 0, sum = 0;
      for (std::size_t j = at; j < at + width; ++j) best = std::max<long double>(best, x[j]);
      for (std::size_t j = at; j < at + width; ++j) total += std::exp(x[j] - best);
      for (std::size_t j = at; j < at + width; ++j) {
        const long double p = std::exp(x[j] - best) / total;
        y[j] = static_cast<double>(p);
        log_y[j] = static_cast<double>(x[j] - best - std::log(total));
        dot += p * dy[j];
        sum += dy[j];
      }
      for (std::size_t j = at; j < at + width; ++j) {
        dx[j] = static_cast<double>(y[j] * (dy[j] - dot));
        log_dx[j] = static_cast<double>(dy[j] - y[j] * sum);
      }
    }
  }
};

template <class T>
void expect_softmax(double tolerance) {
  for (const Size s : Sizes) {
    const auto x = random_values<T>(s.rows * s.width, 1, -8, 8);
    const auto dy = random_values<T>(s.rows * s.width, 2);
    const Reference want(x, dy, s);
    auto y = unwritten<T>(std::ssize(x));
    auto log_y = y;
    auto dx = y;
    auto log_dx = y;
    softmax<T>(x, s.rows, s.width, y);
    test::expect_near(y, want.y, tolerance);
    softmax_backward<T>(dy, y, s.rows, s.width, dx);
    test::expect_near(dx, want.dx, 3 * tolerance);
    log_softmax<T>(x, s.rows, s.width, log_y);
    test::expect_near(log_y, want.log_y, 16 * tolerance);  // values up to 16 + log(width)
    log_softmax_backward<T>(dy, log_y, s.rows, s.width, log_dx);
    // sum(dy) reaches the square root of the width.
    test::expect_near(log_dx, want.log_dx, 60 * tolerance);
  }
}

TEST(SoftmaxKernel, ForwardAndBackwardMatchLongDoubleOnEveryTarget) {
  test::for_each_simd_target([] { expect_softmax<float>(3e-7); });
  expect_softmax<double>(1e-15);
}

TEST(SoftmaxKernel, HugeAndMaskedLogitsOnEveryTarget) {
  test::for_each_simd_target([] {
    const std::vector<float> x = {1e4F,   1e4F, -1e4F, -Inf, 0,    3e38F,
                                  -3e38F, 0,    2,     -Inf, -Inf, -Inf};
    std::vector<float> y(12);
    softmax<float>(x, 3, 4, y);
    EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + 8),
              (std::vector<float>{0.5F, 0.5F, 0, 0, 0, 1, 0, 0}));
    EXPECT_EQ(std::vector<float>(y.begin() + 8, y.end()), (std::vector<float>{1, 0, 0, 0}));
    log_softmax<float>(x, 3, 4, y);
    EXPECT_FLOAT_EQ(y[0], -std::log(2.0F));
    EXPECT_FLOAT_EQ(y[2], -2e4F - std::log(2.0F));
    EXPECT_EQ(y[3], -Inf);
    EXPECT_EQ(y[8], 0);
  });
}

// exp within 2 units in the last place (1.2e-7 of it each), the sum, the quotient and the product.
TEST(SoftmaxKernel, SmallProbabilitiesAreAsAccurateOnEveryTarget) {
  constexpr std::int64_t Width = 4099;
  std::vector<float> x(Width);
  for (std::size_t i = 0; i < Width; ++i) x[i] = -87.2F * static_cast<float>(i) / Width;
  long double total = 0;
  for (const float v : x) total += std::exp(static_cast<long double>(v));
  test::for_each_simd_target([&] {
    std::vector<float> y(Width);
    softmax<float>(x, 1, Width, y);
    for (std::size_t i = 0; i < Width; ++i) {
      const auto want = static_cast<double>(std::exp(static_cast<long double>(x[i])) / total);
      if (want < 1.2e-38) continue;  // denormal
      ASSERT_NEAR(static_cast<double>(y[i]) / want, 1, 6e-7) << x[i];
    }
  });
}

TEST(SoftmaxKernel, NanStaysInItsRowOnEveryTarget) {
  test::for_each_simd_target([] {
    std::vector<float> x(60, 1.0F);
    x[33] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> y(60);
    softmax<float>(x, 3, 20, y);
    for (std::size_t i = 0; i < 60; ++i) EXPECT_EQ(std::isnan(y[i]), i / 20 == 1);
    log_softmax<float>(x, 3, 20, y);
    for (std::size_t i = 0; i < 60; ++i) EXPECT_EQ(std::isnan(y[i]), i / 20 == 1);
  });
}

// Values of a row far from those of its neighbours: a row shifted by another's largest element
// would be all NaN or 0.
TEST(SoftmaxKernel, RowsTogetherHaveTheBitsOfRowsAloneOnEveryTarget) {
  test::for_each_simd_target([] {
    for (const std::int64_t width : {3, 33, 200, 400, 3100}) {
      const std::int64_t rows = 41;
      auto x = random_values<float>(rows * width, 5, -8, 8);
      for (std::int64_t i = 0; i < rows * width; ++i) {
        x[static_cast<std::size_t>(i)] += 500 * static_cast<float>(i / width % 7);
      }
      auto together = unwritten<float>(rows * width);
      auto alone = together;
      softmax<float>(x, rows, width, together);
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto at = static_cast<std::size_t>(r * width), n = static_cast<std::size_t>(width);
        softmax<float>(test::in(x).subspan(at, n), 1, width, std::span(alone).subspan(at, n));
      }
      EXPECT_TRUE(test::same_bits(together, alone)) << width;
    }
  });
}

TEST(SoftmaxKernel, WorksInPlaceAndForAnyNumberOfThreads) {
  const auto x = random_values<float>(2000 * 67, 3);
  const auto dy = random_values<float>(2000 * 67, 4);
  test::expect_thread_independent([&] {
    auto y = x;
    softmax<float>(y, 2000, 67, y);
    auto dx = dy;
    softmax_backward<float>(dx, y, 2000, 67, dx);
    log_softmax<float>(y, 2000, 67, y);
    log_softmax_backward<float>(dx, y, 2000, 67, dx);
    y.insert(y.end(), dx.begin(), dx.end());
    return y;
  });
}

TEST(SoftmaxKernel, EmptyIsFineAndWrongSizesAreNot) {
  std::vector<float> none;
  std::vector<float> two(2);
  softmax<float>(none, 0, 5, none);
  softmax<float>(none, 5, 0, none);
  EXPECT_THROW(softmax<float>(two, 1, 3, two), Error);
  EXPECT_THROW(softmax_backward<float>(two, none, 1, 2, two), Error);
}

}  // namespace
}  // namespace steady::kernels
