#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/finite.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <vector>

// CASES RT-06: what -ffast-math would take from the library.

namespace steady {
namespace {

using kernels::all_finite;
using kernels::count_non_finite;

template <class T>
class Finite : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Finite, Types);

TYPED_TEST(Finite, FindsNanAndInfinityAnywhere) {
  using T = TypeParam;
  using Limits = std::numeric_limits<T>;
  for (const std::size_t size : {1U, 7U, 64U, 70001U}) {
    std::vector<T> x(size, Limits::max());
    x.back() = Limits::denorm_min();
    EXPECT_TRUE(all_finite<T>(x));
    for (const T bad : {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()}) {
      for (const std::size_t at : {std::size_t{0}, size / 2, size - 1}) {
        std::vector<T> spoiled = x;
        spoiled[at] = bad;
        EXPECT_FALSE(all_finite<T>(spoiled));
        const kernels::NonFinite found = count_non_finite<T>(spoiled);
        EXPECT_EQ(found.nan, std::isnan(bad) ? 1 : 0);
        EXPECT_EQ(found.inf, std::isnan(bad) ? 0 : 1);
        EXPECT_EQ(found.first, static_cast<std::int64_t>(at));
      }
    }
  }
  EXPECT_TRUE(all_finite<T>(std::vector<T>{}));
}

TYPED_TEST(Finite, ArithmeticIsExact) {
  using T = TypeParam;
  constexpr T Inf = std::numeric_limits<T>::infinity();
  const auto one = [](T v) { return Tensor::from<T>({1}, std::vector<T>{v}); };
  EXPECT_TRUE(std::isnan((one(0) / one(0)).item()));
  EXPECT_TRUE(std::isnan((one(Inf) - one(Inf)).item()));
  EXPECT_TRUE(std::signbit((one(T(-0.0)) * one(1)).item()));
  EXPECT_TRUE(std::signbit((-one(0)).item()));
  EXPECT_EQ((one(1) / one(T(-0.0))).item(), -Inf);
  EXPECT_GT((one(std::numeric_limits<T>::denorm_min()) * one(1)).item(), 0);  // not flushed
  // Reassociation would cancel the large terms first, or a compensation away.
  const T big = T(1) / std::numeric_limits<T>::epsilon();
  EXPECT_EQ(((one(1) + one(T(4) * big)) - one(T(4) * big)).item(), 0);
}

// A user's program may relax its own arithmetic: what it cannot see itself, the library still does.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("fast-math")
#endif
[[gnu::noinline]] float user_quotient(float a, float b) { return a / b; }
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

TEST(FiniteChecks, SeeWhatARelaxedProgramMakes) {
  volatile float zero = 0.0F;
  const float bad = user_quotient(zero, zero);
  EXPECT_EQ(count_non_finite<float>(std::vector<float>{1.0F, bad}).nan, 1);
  BatchNorm norm({.features = 1});
  EXPECT_THROW((void)norm(Tensor::from<float>({2, 1}, std::vector<float>{1.0F, bad})),
               NonFiniteError);
}

}  // namespace
}  // namespace steady
