#include <algorithm>
#include <cmath>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/optimizer.hpp>

#include "kernel_test.hpp"

namespace steady::kernels {
namespace {

using test::random_values;

// Not a multiple of any vector length, so that the last vector is a part.
constexpr std::int64_t N = 1003;
constexpr AdamStep Adam{
    .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .l2 = 0.01, .keep = 0.999, .size = 0.1, .root = 1.5};
constexpr RmsPropStep Rms{.lr = 0.1, .alpha = 0.9, .eps = 1e-5, .l2 = 0.01, .momentum = 0.5};

/// The arrays of an update as the rules below read and write them.
template <class T>
struct Arrays {
  std::vector<T> p = random_values<T>(N, 1);
  std::vector<T> a = random_values<T>(N, 2, 0, 1);
  std::vector<T> b = random_values<T>(N, 3, 1.1, 2);
  std::vector<T> c = random_values<T>(N, 4, 0, 3);
  std::vector<T> g = random_values<T>(N, 5);
};

/// Expects kernel(arrays of T) to be rule(p, a, b, c, g) in double, element by element.
template <class T, class Kernel, class Rule>
void expect_rule(double tolerance, const Kernel& kernel, const Rule& rule) {
  Arrays<T> got;
  Arrays<double> want;
  for (std::size_t i = 0; i < want.p.size(); ++i) {
    const auto start = [&](const std::vector<T>& v) { return static_cast<double>(v[i]); };
    want.p[i] = start(got.p);
    want.a[i] = start(got.a);
    want.b[i] = start(got.b);
    want.c[i] = start(got.c);
    rule(want.p[i], want.a[i], want.b[i], want.c[i], start(got.g));
  }
  kernel(got);
  test::expect_near(got.p, want.p, tolerance);
  test::expect_near(got.a, want.a, tolerance);
  test::expect_near(got.b, want.b, tolerance);
  test::expect_near(got.c, want.c, tolerance);
}

template <class Kernel, class Rule>
void expect_rule_on_every_target(const Kernel& kernel, const Rule& rule) {
  test::for_each_simd_target([&] {
    expect_rule<float>(2e-6, kernel, rule);
    expect_rule<double>(1e-14, kernel, rule);
  });
}

void adam_rule(double& p, double& m, double& v, double& largest, double g, bool amsgrad) {
  const double d = g + Adam.l2 * p;
  m = Adam.beta1 * m + (1 - Adam.beta1) * d;
  v = Adam.beta2 * v + (1 - Adam.beta2) * d * d;
  if (amsgrad) largest = std::max(largest, v);
  const double root = std::sqrt(amsgrad ? largest : v) * Adam.root;
  p = Adam.keep * p - Adam.size * m / (root + Adam.eps);
}

TEST(AdamKernel, FollowsTheUpdateRule) {
  for (const bool amsgrad : {false, true}) {
    expect_rule_on_every_target(
        [&]<class T>(Arrays<T>& x) {
          adam_update<T>(Adam, x.p, x.a, x.b, amsgrad ? std::span<T>(x.c) : std::span<T>(), x.g);
        },
        [&](double& p, double& m, double& v, double& largest, double g) {
          adam_rule(p, m, v, largest, g, amsgrad);
        });
  }
}

TEST(RmsPropKernel, FollowsTheUpdateRule) {
  for (const bool centered : {false, true}) {
    for (const bool momentum : {false, true}) {
      expect_rule_on_every_target(
          [&]<class T>(Arrays<T>& x) {
            rmsprop_update<T>(Rms, x.p, x.b, centered ? std::span<T>(x.a) : std::span<T>(),
                              momentum ? std::span<T>(x.c) : std::span<T>(), x.g);
          },
          [&](double& p, double& mean, double& v, double& buf, double g) {
            const double d = g + Rms.l2 * p;
            v = Rms.alpha * v + (1 - Rms.alpha) * d * d;
            if (centered) mean = Rms.alpha * mean + (1 - Rms.alpha) * d;
            double move = d / (std::sqrt(v - (centered ? mean * mean : 0)) + Rms.eps);
            if (momentum) move = buf = Rms.momentum * buf + move;
            p -= Rms.lr * move;
          });
    }
  }
}

TEST(RmsPropKernel, RoundingCannotMakeTheCenteredSpreadNegative) {
  test::for_each_simd_target([] {
    std::vector<float> p{1};
    std::vector<float> v{1};
    std::vector<float> mean{1.0001F};  // a constant gradient of 1, but for rounding
    std::vector<float> none;
    const std::vector<float> g{1};
    const float nan = std::numeric_limits<float>::quiet_NaN();
    rmsprop_update<float>({.lr = 1, .alpha = 1, .eps = 0.5}, p, v, mean, none, g);
    EXPECT_EQ(p[0], -1);
    v[0] = nan;
    rmsprop_update<float>({.lr = 1, .alpha = 1, .eps = 0.5}, p, v, mean, none, g);
    EXPECT_TRUE(std::isnan(p[0]));
  });
}

TEST(AdagradKernel, FollowsTheUpdateRule) {
  constexpr AdagradStep Step{.lr = 0.1, .eps = 1e-10, .l2 = 0.01};
  expect_rule_on_every_target(
      [&]<class T>(Arrays<T>& x) { adagrad_update<T>(Step, x.p, x.b, x.g); },
      [&](double& p, double&, double& sum, double&, double g) {
        const double d = g + Step.l2 * p;
        sum += d * d;
        p -= Step.lr * d / (std::sqrt(sum) + Step.eps);
      });
}

TEST(AdamKernel, AnyNumberOfThreadsGivesTheSameBits) {
  const auto start = random_values<float>(100003, 5, 0, 1);
  const auto g = random_values<float>(100003, 6);
  test::expect_thread_independent([&] {
    auto p = start, m = start, v = start, largest = start;
    adam_update<float>(Adam, p, m, v, largest, g);
    rmsprop_update<float>(Rms, p, v, m, largest, g);
    adagrad_update<float>({.lr = 0.1, .eps = 1e-10}, p, v, g);
    for (const auto* more : {&m, &v, &largest}) p.insert(p.end(), more->begin(), more->end());
    return p;
  });
}

TEST(AdamKernel, ArraysOfOtherLengthsAreRefused) {
  std::vector<float> two(2), three(3), none;
  const std::vector<float> g(2);
  EXPECT_THROW(adam_update<float>(Adam, two, three, two, none, g), Error);
  EXPECT_THROW(adam_update<float>(Adam, two, two, none, none, g), Error);
  EXPECT_THROW(adam_update<float>(Adam, two, two, two, three, g), Error);
  EXPECT_THROW(rmsprop_update<float>(Rms, two, none, none, none, g), Error);
  EXPECT_THROW(adagrad_update<float>({}, three, three, g), Error);
}

}  // namespace
}  // namespace steady::kernels
