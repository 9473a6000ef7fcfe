#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/init.hpp>

namespace steady {
namespace {

struct Moments {
  double mean = 0;
  double deviation = 0;
  double low = 0;
  double high = 0;
};

Moments moments_of(const Init& init, const Shape& shape) {
  Tensor t = Tensor::zeros(shape, Dtype::F64);
  Random random(11, "init");
  init(t, random);
  Moments m;
  const auto n = static_cast<double>(t.numel());
  for (const double x : t.data<double>()) m.mean += x / n;
  for (const double x : t.data<double>()) m.deviation += (x - m.mean) * (x - m.mean) / n;
  m.deviation = std::sqrt(m.deviation);
  m.low = *std::ranges::min_element(t.data<double>());
  m.high = *std::ranges::max_element(t.data<double>());
  return m;
}

TEST(Init, FansFollowPyTorch) {
  const Fans fans = fans_of({64, 32, 3, 3});
  EXPECT_EQ(fans.in, 32 * 9);
  EXPECT_EQ(fans.out, 64 * 9);
  EXPECT_THROW((void)fans_of({3}), ShapeError);
}

TEST(Init, RefusesWhatItCouldNotDraw) {
  EXPECT_THROW((void)truncated_normal_init(0, 1, 20, 30), Error);
  EXPECT_THROW((void)truncated_normal_init(0, 0, 1, 2), Error);
  EXPECT_THROW((void)normal_init(0, -1), Error);
  EXPECT_THROW((void)uniform_init(1, 0), Error);
}

TEST(Init, DeviationsAndBoundsAreThoseOfTheFormulas) {
  const Shape shape{200, 40, 3, 3};
  const double fan_in = 40 * 9;
  const double fan_out = 200 * 9;
  const auto near = [](double got, double want) { EXPECT_NEAR(got, want, 0.02 * want); };
  near(moments_of(kaiming_normal_init(std::sqrt(2.0)), shape).deviation, std::sqrt(2 / fan_in));
  near(moments_of(kaiming_uniform_init(1.0), shape).deviation, 1 / std::sqrt(fan_in));
  near(moments_of(kaiming_uniform_init(1.0), shape).high, std::sqrt(3 / fan_in));
  near(moments_of(xavier_normal_init(), shape).deviation, std::sqrt(2 / (fan_in + fan_out)));
  near(moments_of(xavier_uniform_init(), shape).high, std::sqrt(6 / (fan_in + fan_out)));
  const Moments truncated = moments_of(truncated_normal_init(0, 1, -2, 2), shape);
  near(truncated.deviation, 0.8796);
  EXPECT_GE(truncated.low, -2);
  EXPECT_LE(truncated.high, 2);
}

}  // namespace
}  // namespace steady
