#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <steadygrad/layers/norm/batch_norm_kernel.hpp>
#include <steadygrad/layers/norm/group_norm_kernel.hpp>
#include <steadygrad/layers/norm/layer_norm_kernel.hpp>
#include <steadygrad/layers/norm/rms_norm_kernel.hpp>

#include "kernel_testing.hpp"

// Float32 values whose squares, or whose sums, overflow in float32: the norm of c * x is the norm
// of x, for any c beside which eps is nothing.
namespace steady {
namespace {

using ::testing::Each;
using ::testing::FloatNear;
using testing::max_error;
using testing::nans;
using testing::Noise;
using testing::on_every_target;

using Norm = std::function<void(std::span<const float> x, std::span<float> y)>;

/// x has 12 rows of 160; eps of the norm: 0.
void expect_scale_free(const Norm& norm) {
  const std::vector<float> x = Noise(21).fill<float>(12 * 160, 1, 0.5);
  for (const float factor : {1e18F, 1e25F, 1e37F}) {
    SCOPED_TRACE(factor);
    std::vector<float> large = x;
    for (float& v : large) v *= factor;
    on_every_target([&] {
      auto want = nans<float>(std::ssize(x)), got = want;
      norm(x, want);
      norm(large, got);
      EXPECT_LE(max_error(got, want, std::vector<double>(x.size(), 1.0)), 2e-6);
    });
  }
}

TEST(LayerNormKernelCases, SquaresMayOverflow) {
  expect_scale_free([](std::span<const float> x, std::span<float> y) {
    layer_norm_forward<float>({12, 160, 160}, 0, x, {}, {}, y, {});
  });
}

// 37 and 2061 leave lanes of the last vector without an element, where x - mean is -mean.
TEST(LayerNormKernelCases, AHugeConstantRowHasNoGradient) {
  for (const std::int64_t width : {37, 2061}) {
    SCOPED_TRACE(width);
    const RowShape shape{6, width, width};
    const auto size = static_cast<std::size_t>(shape.elements());
    const auto columns = static_cast<std::size_t>(width);
    const std::vector<float> x(size, 1e38F), dy(size, 1), gamma(columns, 1);
    on_every_target([&] {
      std::vector<float> y(size), stats(18),
          room(static_cast<std::size_t>(layer_norm_workspace(shape)));
      layer_norm_forward<float>(shape, 1e-5, x, gamma, {}, y, stats);
      auto dx = nans<float>(std::ssize(x)), dgamma = nans<float>(width), dbeta = dgamma;
      layer_norm_backward<float>(shape, x, dy, gamma, stats, dx, dgamma, dbeta, room);
      EXPECT_THAT(dx, Each(FloatNear(0, 1e-3F)));
      EXPECT_THAT(dgamma, Each(0.0F));
      EXPECT_THAT(dbeta, Each(6.0F));
    });
  }
}

TEST(RmsNormKernelCases, AHugeConstantRowHasNoGradient) {
  for (const std::int64_t width : {37, 160, 2061}) {
    SCOPED_TRACE(width);
    const RowShape shape{6, width, width};
    const auto size = static_cast<std::size_t>(shape.elements());
    const std::vector<float> x(size, 1e37F), dy(size, 1);
    on_every_target([&] {
      std::vector<float> y(size), stats(6),
          room(static_cast<std::size_t>(rms_norm_workspace(shape)));
      rms_norm_forward<float>(shape, 0, false, x, {}, y, stats);
      auto dx = nans<float>(std::ssize(x)), dgamma = nans<float>(width);
      rms_norm_backward<float>(shape, false, x, dy, {}, stats, dx, dgamma, room);
      EXPECT_THAT(dx, Each(FloatNear(0, 1e-6F)));
      EXPECT_THAT(dgamma, Each(FloatNear(6, 1e-5F)));
    });
  }
}

TEST(RmsNormKernelCases, SquaresMayOverflow) {
  expect_scale_free([](std::span<const float> x, std::span<float> y) {
    rms_norm_forward<float>({12, 160, 160}, 0, false, x, {}, y, {});
  });
}

TEST(GroupNormKernelCases, SquaresMayOverflow) {
  for (const GroupShape& shape : {GroupShape{4, 15, 32, 4}, GroupShape{12, 1, 160, 5}}) {
    expect_scale_free([&](std::span<const float> x, std::span<float> y) {
      group_norm_forward<float>(shape, 0, x, {}, {}, y, {});
    });
  }
}

TEST(BatchNormKernelCases, SquaresMayOverflow) {
  expect_scale_free([](std::span<const float> x, std::span<float> y) {
    const ColumnShape shape{60, 32};
    std::vector<Moments> moments(32);
    auto stats = nans<float>(96);
    auto workspace = nans<double>(column_workspace(shape));
    batch_norm_forward<float>(shape, 0, x, {}, {}, y, moments, stats, workspace);
  });
}

}  // namespace
}  // namespace steady
