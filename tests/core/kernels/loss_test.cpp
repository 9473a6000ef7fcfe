#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/loss.hpp>
#include <string>

#include "kernel_test.hpp"

namespace steady::kernels {
namespace {

using test::expect_near;
using test::random_values;
using test::unwritten;
using Targets = std::vector<std::int64_t>;

template <class T>
struct Run {
  CrossEntropySums sums;
  std::vector<T> loss, dlogits;
  std::vector<double> lse;
};

/// Forward, then the backward of the mean (of the plain sum when no row is used).
template <class T>
Run<T> run(const CrossEntropy<T>& o, const std::vector<T>& logits, const Targets& target) {
  Run<T> r{{}, unwritten<T>(o.rows), unwritten<T>(std::ssize(logits)), unwritten<double>(o.rows)};
  r.sums = cross_entropy_forward<T>(o, logits, target, r.loss, r.lse);
  const std::vector<T> g = {static_cast<T>(1 / (r.sums.weight > 0 ? r.sums.weight : 1))};
  cross_entropy_backward<T>(o, g, logits, target, r.lse, r.dlogits);
  return r;
}

TEST(CrossEntropyKernel, IgnoredRowsCountNothing) {  // CASES LS-02
  const std::vector<float> logits = {1, 2, 3, 0, 0, 0};
  CrossEntropy<float> o{.rows = 2, .classes = 3};
  const auto both = run(o, logits, {2, 1});
  EXPECT_NEAR(both.sums.loss / both.sums.weight, 0.75310913, 1e-7);
  expect_near(both.dlogits, {0.04501529, 0.12236424, -0.16737952, 1 / 6., -1 / 3., 1 / 6.}, 1e-7);
  o.ignore_index = 255;
  const auto one = run(o, logits, {2, 255});
  EXPECT_EQ(one.sums.used, 1);
  EXPECT_NEAR(one.sums.loss / one.sums.weight, 0.40760596, 1e-7);
  expect_near(one.dlogits, {0.09003057, 0.24472847, -0.33475904, 0, 0, 0}, 1e-7);
}

TEST(CrossEntropyKernel, AllIgnoredGivesZeros) {  // CASES LS-01
  const auto r = run<float>({.rows = 2, .classes = 3}, {1, 2, 3, 4, 5, 6}, {-100, -100});
  EXPECT_EQ(r.sums.used, 0);
  EXPECT_EQ(r.sums.weight, 0);
  EXPECT_EQ(r.sums.loss, 0);
  EXPECT_EQ(r.loss, (std::vector<float>{0, 0}));
  EXPECT_EQ(r.dlogits, std::vector<float>(6, 0.0F));
}

TEST(CrossEntropyKernel, AnIgnoredRowOfNanDoesNotLeak) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto r = run<float>({.rows = 2, .classes = 2}, {nan, nan, 0, 0}, {-100, 1});
  EXPECT_NEAR(r.sums.loss, std::log(2.0), 1e-7);
  EXPECT_EQ(r.dlogits, (std::vector<float>{0, 0, 0.5F, -0.5F}));
}

TEST(CrossEntropyKernel, RefusesBadTargetsBeforeWriting) {  // CASES LS-03
  const std::vector<float> logits(6);
  for (const std::int64_t bad : {-4, 3}) {
    auto loss = unwritten<float>(2);
    auto lse = unwritten<double>(2);
    const Targets target = {0, bad};
    const CrossEntropy<float> o{.rows = 2, .classes = 3};
    try {
      (void)cross_entropy_forward<float>(o, logits, target, loss, lse);
      FAIL();
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("target[1] = " + std::to_string(bad) + " with 3 classes"),
                std::string::npos)
          << text;
    }
    EXPECT_TRUE(std::isnan(loss[0]) && std::isnan(lse[0]));
    auto dlogits = unwritten<float>(6);
    EXPECT_THROW(cross_entropy_backward<float>(o, loss, logits, target, lse, dlogits), Error);
    EXPECT_TRUE(std::isnan(dlogits[0]));
  }
}

TEST(CrossEntropyKernel, MeanDividesByTheClassWeights) {  // CASES LS-05
  const std::vector<float> weight = {1, 2, 10};
  const auto r = run<float>({.rows = 2, .classes = 3, .class_weight = weight},
                            {1, 2, 3, 0.5F, 0, -0.5F}, {2, 0});
  EXPECT_EQ(r.sums.weight, 11);
  EXPECT_NEAR(r.sums.loss / r.sums.weight, 0.43239357, 1e-7);
  expect_near(r.dlogits, {0.08184598, 0.22248043, -0.30432640, -0.04486542, 0.02792690, 0.01693852},
              1e-7);
}

TEST(CrossEntropyKernel, Float32MatchesFloat64OnEveryTarget) {
  const auto x = random_values<float>(40 * 1000, 8, -6, 6);
  const std::vector<double> wide(x.begin(), x.end());
  Targets target(40);
  for (std::size_t r = 0; r < target.size(); ++r)
    target[r] = static_cast<std::int64_t>(r * 29 % 1000);
  target[39] = 999;
  const auto want =
      run<double>({.rows = 40, .classes = 1000, .label_smoothing = 0.1}, wide, target);
  test::for_each_simd_target([&] {
    const auto got = run<float>({.rows = 40, .classes = 1000, .label_smoothing = 0.1}, x, target);
    expect_near(got.loss, want.loss, 1e-6);
    expect_near(got.dlogits, want.dlogits, 4e-9);  // values up to 1 / 40
    expect_near(got.lse, want.lse, 5e-7);
  });
}

TEST(CrossEntropyKernel, HugeAndMaskedLogitsStayExact) {
  const float inf = std::numeric_limits<float>::infinity();
  const auto huge =
      run<float>({.rows = 2, .classes = 3}, {1e4F, 1e4F, 1e4F, -1e4F, 1e4F, 0}, {1, 0});
  EXPECT_NEAR(huge.loss[0], std::log(3.0), 1e-7);
  EXPECT_EQ(huge.loss[1], 2e4F);
  expect_near(huge.dlogits, {1 / 6., -1 / 3., 1 / 6., -0.5, 0.5, 0}, 1e-7);
  const auto masked = run<float>({.rows = 1, .classes = 3}, {0, -inf, 0}, {0});
  EXPECT_NEAR(masked.loss[0], std::log(2.0), 1e-7);
  expect_near(masked.dlogits, {-0.5, 0, 0.5}, 1e-7);
  const std::vector<float> weight = {1, 0, 1};
  const auto smoothed = run<float>(
      {.rows = 1, .classes = 3, .label_smoothing = 0.3, .class_weight = weight}, {0, -inf, 0}, {0});
  EXPECT_NEAR(smoothed.loss[0], 0.7 * std::log(2.0) + 0.1 * 2 * std::log(2.0), 1e-6);
}

/// The options the derivative tests run with.
CrossEntropy<double> full_options(const std::vector<double>& weight) {
  return {
      .rows = 7, .classes = 5, .ignore_index = 3, .label_smoothing = 0.2, .class_weight = weight};
}
const Targets FullTarget = {0, 4, 3, 2, 1, 3, 0};

TEST(CrossEntropyKernel, BackwardMatchesDifferences) {
  const std::vector<double> weight = {0.5, 2, 1, 3, 0.25};
  const auto o = full_options(weight);
  auto x = random_values<double>(35, 1);
  const auto g = random_values<double>(7, 2);
  std::vector<double> loss(7);
  std::vector<double> lse(7);
  std::vector<double> dx(35);
  const auto value = [&] {
    (void)cross_entropy_forward<double>(o, x, FullTarget, loss, lse);
    double total = 0;
    for (std::size_t r = 0; r < 7; ++r) total += g[r] * loss[r];
    return total;
  };
  (void)value();
  cross_entropy_backward<double>(o, g, x, FullTarget, lse, dx);
  for (std::size_t i = 0; i < 35; ++i) {
    const double keep = x[i];
    x[i] = keep + 1e-6;
    const double high = value();
    x[i] = keep - 1e-6;
    const double low = value();
    x[i] = keep;
    ASSERT_NEAR(dx[i], (high - low) / 2e-6, 1e-8) << i;
  }
}

TEST(CrossEntropyKernel, SecondDerivativeMatchesDifferences) {
  const std::vector<double> weight = {0.5, 2, 1, 3, 0.25};
  const auto o = full_options(weight);
  auto x = random_values<double>(35, 3);
  auto g = random_values<double>(7, 4);
  const auto v = random_values<double>(35, 5);
  std::vector<double> lse(7);
  std::vector<double> dx(35);
  const auto value = [&] {
    (void)cross_entropy_forward<double>(o, x, FullTarget, {}, lse);
    cross_entropy_backward<double>(o, g, x, FullTarget, lse, dx);
    double total = 0;
    for (std::size_t i = 0; i < 35; ++i) total += v[i] * dx[i];
    return total;
  };
  (void)value();
  auto second = unwritten<double>(35);
  auto dg = unwritten<double>(7);
  cross_entropy_second<double>(o, v, g, x, FullTarget, lse, second, dg);
  const auto difference = [&](double& variable) {
    const double keep = variable;
    variable = keep + 1e-6;
    const double high = value();
    variable = keep - 1e-6;
    const double low = value();
    variable = keep;
    return (high - low) / 2e-6;
  };
  for (std::size_t i = 0; i < 35; ++i) ASSERT_NEAR(second[i], difference(x[i]), 1e-8) << i;
  for (std::size_t r = 0; r < 7; ++r) ASSERT_NEAR(dg[r], difference(g[r]), 1e-8) << r;
}

TEST(CrossEntropyKernel, AnyNumberOfThreadsGivesTheSameBits) {
  const auto x = random_values<float>(3000 * 37, 6, -5, 5);
  Targets target(3000);
  for (std::size_t r = 0; r < target.size(); ++r)
    target[r] = r % 11 == 0 ? -100 : static_cast<std::int64_t>(r * 7 % 37);
  const CrossEntropy<float> o{.rows = 3000, .classes = 37, .label_smoothing = 0.1};
  test::expect_thread_independent([&] {
    auto r = run(o, x, target);
    r.dlogits.push_back(static_cast<float>(r.sums.loss));
    r.dlogits.insert(r.dlogits.end(), r.loss.begin(), r.loss.end());
    return r.dlogits;
  });
}

}  // namespace
}  // namespace steady::kernels
