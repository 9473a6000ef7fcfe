#include <gtest/gtest.h>

#include <steadygrad/core/kernels/softmax.hpp>
#include <steadygrad/core/kernels/stream.hpp>
#include <steadygrad/layers/norm/batch_norm_kernel.hpp>
#include <steadygrad/layers/norm/group_norm_kernel.hpp>
#include <steadygrad/layers/norm/layer_norm_kernel.hpp>
#include <steadygrad/layers/norm/rms_norm_kernel.hpp>

#include "kernel_testing.hpp"

// Large outputs are written past the caches. They have the bits that the same rows have when a call
// holds few enough of them to be stored plainly.
namespace steady {
namespace {

using testing::on_every_target;

constexpr std::int64_t Rows = 8400, Parts = 4, Width = 512, WideWidth = 1536;
constexpr std::int64_t Elements = Rows * Width;

/// Starts a line of the caches, as tensors do.
class Aligned {
 public:
  explicit Aligned(std::uint64_t seed) : room_(static_cast<std::size_t>(Elements) + 16) {
    testing::Noise noise(seed);
    for (float& v : all()) v = static_cast<float>(noise.next());
  }
  std::span<float> all() {
    const auto start = reinterpret_cast<std::uintptr_t>(room_.data());
    return std::span(room_).subspan((64 - start % 64) % 64 / 4, static_cast<std::size_t>(Elements));
  }
  std::span<float> part(std::int64_t i) {
    constexpr auto Size = static_cast<std::size_t>(Elements / Parts);
    return all().subspan(static_cast<std::size_t>(i) * Size, Size);
  }

 private:
  std::vector<float> room_;
};

struct Data {
  Aligned x{31}, dy{32}, whole{33}, parts{34};
  std::vector<float> gain = testing::Noise(35).fill<float>(Width);
  std::vector<float> wide_gain = testing::Noise(36).fill<float>(WideWidth);
};

/// Rows of Width, or a third as many that are too wide for one piece.
RowShape row_shape(std::int64_t rows, bool wide) {
  return wide ? RowShape{rows * Width / WideWidth, WideWidth, WideWidth}
              : RowShape{rows, Width, Width};
}

/// body(x, dy, out, rows) for all rows at once and for each quarter: the outputs are equal.
template <class Body>
void expect_same_bits(std::int64_t arrays, Body body) {
  static Data d;
  ASSERT_TRUE(kernels::streams(arrays * Elements * 4, d.whole.all().data(), Width * 4));
  ASSERT_FALSE(kernels::streams(arrays * Elements / Parts * 4, d.parts.all().data(), Width * 4));
  on_every_target([&] {
    std::ranges::fill(d.whole.all(), std::numeric_limits<float>::quiet_NaN());
    body(d, d.x.all(), d.dy.all(), d.whole.all(), Rows);
    for (std::int64_t i = 0; i < Parts; ++i) {
      body(d, d.x.part(i), d.dy.part(i), d.parts.part(i), Rows / Parts);
    }
    EXPECT_TRUE(std::ranges::equal(d.whole.all(), d.parts.all()));
  });
}

using In = std::span<const float>;
using Out = std::span<float>;

class StreamedRows : public ::testing::TestWithParam<bool> {};

TEST_P(StreamedRows, LayerNorm) {
  const bool wide = GetParam();
  expect_same_bits(2, [=](const Data& d, In x, In, Out y, std::int64_t rows) {
    const auto& gain = wide ? d.wide_gain : d.gain;
    layer_norm_forward<float>(row_shape(rows, wide), 1e-5, x, gain, gain, y, {});
  });
  expect_same_bits(3, [=](const Data& d, In x, In dy, Out dx, std::int64_t rows) {
    const auto& gain = wide ? d.wide_gain : d.gain;
    const RowShape shape = row_shape(rows, wide);
    std::vector<float> stats(static_cast<std::size_t>(3 * shape.rows), 0.5F), dgamma(gain.size());
    std::vector<float> workspace(static_cast<std::size_t>(layer_norm_workspace(shape)));
    layer_norm_backward<float>(shape, x, dy, gain, stats, dx, {}, {}, workspace);
    layer_norm_backward<float>(shape, x, dy, gain, stats, dx, dgamma, {}, workspace);
  });
}

TEST_P(StreamedRows, RmsNorm) {
  const bool wide = GetParam();
  expect_same_bits(2, [=](const Data& d, In x, In, Out y, std::int64_t rows) {
    const auto& gain = wide ? d.wide_gain : d.gain;
    rms_norm_forward<float>(row_shape(rows, wide), 1e-5, false, x, gain, y, {});
  });
  expect_same_bits(3, [=](const Data& d, In x, In dy, Out dx, std::int64_t rows) {
    const auto& gain = wide ? d.wide_gain : d.gain;
    const RowShape shape = row_shape(rows, wide);
    std::vector<float> stats(static_cast<std::size_t>(shape.rows), 0.5F), dgamma(gain.size());
    std::vector<float> workspace(static_cast<std::size_t>(rms_norm_workspace(shape)));
    rms_norm_backward<float>(shape, false, x, dy, gain, stats, dx, {}, workspace);
    rms_norm_backward<float>(shape, false, x, dy, gain, stats, dx, dgamma, workspace);
  });
}

INSTANTIATE_TEST_SUITE_P(ShortAndWide, StreamedRows, ::testing::Bool());

TEST(StreamedNorms, Softmax) {
  expect_same_bits(2, [](const Data&, In x, In, Out y, std::int64_t rows) {
    kernels::softmax<float>(x, rows, Width, y);
  });
  expect_same_bits(3, [](const Data&, In x, In dy, Out dx, std::int64_t rows) {
    kernels::softmax_backward<float>(dy, x, rows, Width, dx);
  });
}

TEST(StreamedNorms, GroupNorm) {
  const auto shape = [](std::int64_t rows) { return GroupShape{rows / 30, 30, Width, 8}; };
  expect_same_bits(2, [&](const Data& d, In x, In, Out y, std::int64_t rows) {
    group_norm_forward<float>(shape(rows), 1e-5, x, d.gain, d.gain, y, {});
  });
  expect_same_bits(3, [&](const Data& d, In x, In dy, Out dx, std::int64_t rows) {
    std::vector<float> stats(static_cast<std::size_t>(3 * rows / 30 * 8), 0.5F);
    std::vector<double> workspace(static_cast<std::size_t>(group_norm_workspace(shape(rows))));
    group_norm_backward<float>(shape(rows), x, dy, d.gain, stats, dx, {}, {}, workspace);
  });
}

TEST(StreamedNorms, BatchNorm) {
  const std::vector<float> stats(3 * Width, 0.5F);
  const std::vector<double> sums(Width, 0.25);
  expect_same_bits(2, [&](const Data& d, In x, In, Out y, std::int64_t rows) {
    batch_norm_apply<float>({rows, Width}, x, d.gain, d.gain, stats, y);
  });
  expect_same_bits(3, [&](const Data& d, In x, In dy, Out dx, std::int64_t rows) {
    batch_norm_backward_input<float>({rows, Width}, 7, x, dy, d.gain, stats, sums, sums, dx);
  });
}

}  // namespace
}  // namespace steady
