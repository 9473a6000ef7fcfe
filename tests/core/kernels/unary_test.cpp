#include <cmath>
#include <numbers>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/elementwise.hpp>

#include "kernel_test.hpp"

namespace steady::kernels {
namespace {

using test::random_values;
using test::same_bits;
using test::unwritten;

constexpr double Inf = std::numeric_limits<double>::infinity();
constexpr double NaN = std::numeric_limits<double>::quiet_NaN();

/// A function with the range it is tested on, its value in double and the largest error of float32
/// there, in units in the last place: twice what was measured with FMA, so that SSE4 passes too.
struct Case {
  Unary op;
  double low, high;
  double (*value)(double);
  double ulp;
  double p0 = 0, p1 = 0;
};

double gelu_tanh(double x) {
  return x / (1 + std::exp(-2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

const std::vector<Case> Cases = {
    {Unary::Exp, -87, 88, [](double x) { return std::exp(x); }, 2},
    {Unary::Log, 1e-6, 50, [](double x) { return std::log(x); }, 2},
    {Unary::Sqrt, 1e-6, 50, [](double x) { return std::sqrt(x); }, 1},
    {Unary::Rsqrt, 1e-3, 50, [](double x) { return 1 / std::sqrt(x); }, 3},
    {Unary::Abs, -5, 5, [](double x) { return std::abs(x); }, 0},
    {Unary::Neg, -5, 5, [](double x) { return -x; }, 0},
    {Unary::Reciprocal, 0.01, 5, [](double x) { return 1 / x; }, 1},
    {Unary::Square, -5, 5, [](double x) { return x * x; }, 1},
    {Unary::Clamp, -5, 5, [](double x) { return std::min(std::max(x, -0.5), 2.0); }, 0, -0.5, 2},
    {Unary::Tanh, -12, 12, [](double x) { return std::tanh(x); }, 5},
    {Unary::Sigmoid, -85, 85, [](double x) { return 1 / (1 + std::exp(-x)); }, 5},
    {Unary::Relu, -5, 5, [](double x) { return x > 0 ? x : 0; }, 0},
    {Unary::LeakyRelu, -5, 5, [](double x) { return x > 0 ? x : 0.25 * x; }, 0, 0.25},
    {Unary::GeluErf, -8, 8, [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }, 12},
    {Unary::GeluTanh, -4, 6, gelu_tanh, 16},  // grows as 2 x^3 in the lower tail
    {Unary::Silu, -85, 85, [](double x) { return x / (1 + std::exp(-x)); }, 5},
    {Unary::Softplus, -85, 30, [](double x) { return x > 20 ? x : std::log1p(std::exp(x)); }, 5, 1,
     20},
    {Unary::Softplus, -40, 30,
     [](double x) { return 2 * x > 10 ? x : std::log1p(std::exp(2 * x)) / 2; }, 5, 2, 10},
    {Unary::Pow, 0.01, 9, [](double x) { return std::pow(x, 2.5); }, 1, 2.5},
    {Unary::Pow, -3, 3, [](double x) { return x * x * x; }, 1, 3},
    {Unary::Pow, -3, 3, [](double x) { return x * x; }, 1, 2},
    {Unary::Pow, 0.1, 3, [](double x) { return 1 / x; }, 1, -1},
};

template <class T>
std::vector<T> value(const Case& c, const std::vector<T>& x) {
  auto y = unwritten<T>(std::ssize(x));
  unary<T>(c.op, x, y, c.p0, c.p1);
  return y;
}

template <class T>
std::vector<T> backward(const Case& c, const std::vector<T>& dy, const std::vector<T>& saved) {
  auto dx = unwritten<T>(std::ssize(dy));
  unary_backward<T>(c.op, dy, saved, dx, c.p0, c.p1);
  return dx;
}

/// One element through every step of float32 and float64.
template <class T>
T one(Unary op, double x, double p0 = 0, double p1 = 0) {
  return value<T>({op, 0, 0, nullptr, 0, p0, p1}, {static_cast<T>(x)})[0];
}
template <class T>
T slope(Unary op, double x, double p0 = 0, double p1 = 0) {
  const Case c{op, 0, 0, nullptr, 0, p0, p1};
  const std::vector<T> input{static_cast<T>(x)};
  return backward<T>(c, {T{1}}, saves_output(op) ? value(c, input) : input)[0];
}

TEST(UnaryKernel, Float32IsWithinAFewUlpOnEveryTarget) {
  test::for_each_simd_target([] {
    for (const Case& c : Cases) {
      const auto x = random_values<float>(20011, 1, c.low, c.high);
      const auto y = value(c, x);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double want = c.value(static_cast<double>(x[i]));
        ASSERT_NEAR(static_cast<double>(y[i]), want, c.ulp * 0x1p-23 * std::abs(want))
            << name(c.op) << " of " << x[i];
      }
    }
  });
}

TEST(UnaryKernel, Float64IsTheFormula) {
  for (const Case& c : Cases) {
    const auto x = random_values<double>(503, 2, c.low, c.high);
    const auto y = value(c, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double want = c.value(x[i]);
      ASSERT_NEAR(y[i], want, 4e-15 * std::abs(want) + 1e-300) << name(c.op) << " of " << x[i];
    }
  }
}

/// Central differences; away from the kinks of the piecewise functions.
double difference(const Case& c, double x) {
  const double h = 1e-6 * std::max(1e-3, std::abs(x));
  return (c.value(x + h) - c.value(x - h)) / (2 * h);
}

TEST(UnaryKernel, FirstDerivativeMatchesDifferences) {
  for (const Case& c : Cases) {
    const double low = std::max(c.low, -30.0);
    const double high = std::min(c.high, 19.0);
    const auto x = random_values<double>(307, 3, low, high);
    const auto dy = random_values<double>(307, 4);
    const auto dx = backward(c, dy, saves_output(c.op) ? value(c, x) : x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double want = difference(c, x[i]);
      ASSERT_NEAR(dx[i], dy[i] * want, 1e-6 * (1 + std::abs(want))) << name(c.op) << " at " << x[i];
    }
  }
}

TEST(UnaryKernel, Float32BackwardMatchesFloat64OnEveryTarget) {
  test::for_each_simd_target([] {
    for (const Case& c : Cases) {
      const auto x = random_values<float>(20011, 5, std::max(c.low, -30.0), c.high);
      const auto dy = random_values<float>(20011, 6);
      const auto saved = saves_output(c.op) ? value(c, x) : x;
      const auto dx = backward(c, dy, saved);
      const std::vector<double> wide_dy(dy.begin(), dy.end());
      const std::vector<double> wide_saved(saved.begin(), saved.end());
      const auto want = backward(c, wide_dy, wide_saved);
      for (std::size_t i = 0; i < x.size(); ++i) {
        // GELU's and SiLU's derivatives cross zero, so their error is absolute there.
        const double tolerance = 1e-6 * std::abs(want[i]) + 4e-7 * std::abs(wide_dy[i]);
        ASSERT_NEAR(static_cast<double>(dx[i]), want[i], tolerance) << name(c.op) << " at " << x[i];
      }
    }
  });
}

TEST(UnaryKernel, SecondDerivativeMatchesDifferencesOfTheFirst) {
  for (const Case& c : Cases) {
    const auto x = random_values<double>(307, 7, std::max(c.low, -5.0), std::min(c.high, 4.9));
    const std::vector<double> ones(x.size(), 1.0);
    auto second = unwritten<double>(std::ssize(x));
    unary_second<double>(c.op, saves_output(c.op) ? value(c, x) : x, second, c.p0, c.p1);
    auto plus = x;
    auto minus = x;
    std::vector<double> step(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      step[i] = 1e-6 * std::max(1e-3, std::abs(x[i]));
      plus[i] += step[i];
      minus[i] -= step[i];
    }
    const auto high = backward(c, ones, saves_output(c.op) ? value(c, plus) : plus);
    const auto low = backward(c, ones, saves_output(c.op) ? value(c, minus) : minus);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double want = (high[i] - low[i]) / (2 * step[i]);
      ASSERT_NEAR(second[i], want, 1e-5 * (1 + std::abs(want))) << name(c.op) << " at " << x[i];
    }
  }
}

template <class T>
void expect_limits() {
  for (const double x : {1e4, Inf}) {
    EXPECT_EQ(one<T>(Unary::Exp, x), T(Inf));
    EXPECT_EQ(one<T>(Unary::Exp, -x), T(0));
    EXPECT_EQ(one<T>(Unary::Tanh, x), T(1));
    EXPECT_EQ(one<T>(Unary::Tanh, -x), T(-1));
    EXPECT_EQ(one<T>(Unary::Sigmoid, x), T(1));
    EXPECT_EQ(one<T>(Unary::Sigmoid, -x), T(0));
    for (const Unary op : {Unary::Relu, Unary::GeluErf, Unary::GeluTanh, Unary::Silu}) {
      EXPECT_EQ(one<T>(op, x), T(x)) << name(op);
      EXPECT_EQ(one<T>(op, -x), T(0)) << name(op);
      EXPECT_EQ(slope<T>(op, x), T(1)) << name(op);
      EXPECT_EQ(slope<T>(op, -x), T(0)) << name(op);
    }
    EXPECT_EQ(one<T>(Unary::Softplus, x, 1, 20), T(x));
    EXPECT_EQ(one<T>(Unary::Softplus, -x, 1, 20), T(0));
    EXPECT_EQ(slope<T>(Unary::Softplus, x, 1, 20), T(1));
    EXPECT_EQ(slope<T>(Unary::Softplus, -x, 1, 20), T(0));
    EXPECT_EQ(slope<T>(Unary::Tanh, -x), T(0));
    EXPECT_EQ(slope<T>(Unary::Sigmoid, x), T(0));
  }
  EXPECT_EQ(one<T>(Unary::Log, 0), T(-Inf));
  EXPECT_EQ(one<T>(Unary::Log, Inf), T(Inf));
  EXPECT_TRUE(std::isnan(one<T>(Unary::Log, -1)));
  EXPECT_EQ(one<T>(Unary::Rsqrt, 0), T(Inf));
  EXPECT_EQ(one<T>(Unary::Rsqrt, Inf), T(0));
  EXPECT_EQ(slope<T>(Unary::Rsqrt, Inf), T(0));
  EXPECT_EQ(slope<T>(Unary::Reciprocal, Inf), T(0));
}

TEST(UnaryKernel, ExtremeInputsGiveTheLimitsOnEveryTarget) {
  test::for_each_simd_target([] { expect_limits<float>(); });
  expect_limits<double>();
  EXPECT_FLOAT_EQ(one<float>(Unary::Log, 1e-40), std::log(1e-40F));  // subnormal
  EXPECT_FLOAT_EQ(one<float>(Unary::Tanh, 1e-40), 1e-40F);
  EXPECT_NEAR(one<float>(Unary::Exp, -100), std::exp(-100.0), 1.5e-45);
  EXPECT_FLOAT_EQ(one<float>(Unary::Exp, 88.7), std::exp(88.7F));
  EXPECT_EQ(one<float>(Unary::Exp, 88.73), std::numeric_limits<float>::infinity());
}

TEST(UnaryKernel, NanPropagatesOnEveryTarget) {
  test::for_each_simd_target([] {
    for (const Case& c : Cases) {
      EXPECT_TRUE(std::isnan(one<float>(c.op, NaN, c.p0, c.p1))) << name(c.op);
      EXPECT_TRUE(std::isnan(one<double>(c.op, NaN, c.p0, c.p1))) << name(c.op);
    }
  });
}

TEST(UnaryKernel, KinksFollowPyTorch) {
  EXPECT_EQ(slope<float>(Unary::Relu, 0), 0);
  EXPECT_EQ(slope<float>(Unary::Abs, 0), 0);
  EXPECT_EQ(slope<float>(Unary::LeakyRelu, 0, 0.25), 0.25F);
  EXPECT_EQ(slope<float>(Unary::Clamp, -1, -1, 2), 1);
  EXPECT_EQ(slope<float>(Unary::Clamp, 2, -1, 2), 1);
  EXPECT_EQ(slope<float>(Unary::Clamp, 2.5, -1, 2), 0);
  EXPECT_EQ(slope<float>(Unary::Pow, 0, 0), 0);
  EXPECT_EQ(slope<float>(Unary::Pow, 0, 1), 1);
  EXPECT_EQ(slope<float>(Unary::Softplus, 20.5, 1, 20), 1);
}

TEST(UnaryKernel, AnElementDoesNotDependOnItsPlace) {
  test::for_each_simd_target([] {
    for (const Case& c : Cases) {
      const auto x = random_values<float>(67, 8, c.low, c.high);
      const auto y = value(c, x);
      const auto dx = backward(c, x, saves_output(c.op) ? y : x);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::vector<float> alone = {x[i]};
        const auto single = value(c, alone);
        ASSERT_TRUE(same_bits(single, {y[i]})) << name(c.op) << " of " << x[i];
        ASSERT_TRUE(same_bits(backward(c, alone, saves_output(c.op) ? single : alone), {dx[i]}));
      }
    }
  });
}

TEST(UnaryKernel, WorksInPlaceAndForAnyNumberOfThreads) {
  const auto x = random_values<float>(100003, 9, -4, 4);
  test::expect_thread_independent([&] {
    auto y = x;
    unary<float>(Unary::GeluTanh, y, y);
    auto dx = x;
    unary_backward<float>(Unary::GeluTanh, dx, y, dx);
    y.insert(y.end(), dx.begin(), dx.end());
    return y;
  });
}

TEST(UnaryKernel, RefusesSizesThatDiffer) {
  std::vector<float> x(3);
  std::vector<float> y(4);
  EXPECT_THROW(unary<float>(Unary::Exp, x, y), Error);
  EXPECT_THROW(unary_backward<float>(Unary::Exp, x, x, y), Error);
  EXPECT_THROW(unary<float>(Unary::Clamp, x, x, 2, 1), Error);
  std::vector<float> none;
  unary<float>(Unary::Exp, none, none);
}

}  // namespace
}  // namespace steady::kernels
