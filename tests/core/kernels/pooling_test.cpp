#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/pooling.hpp>
#include <steadygrad/core/parallel.hpp>
#include <vector>

#include "kernel_test.hpp"

namespace steady::kernels {
namespace {

using Index = std::int64_t;

constexpr float NaN = std::numeric_limits<float>::quiet_NaN();
constexpr float Infinity = std::numeric_limits<float>::infinity();

/// Values on a coarse grid, so that ties are common.
std::vector<float> values(Index count, std::uint32_t seed) {
  std::vector<float> result(static_cast<std::size_t>(count));
  std::uint32_t state = seed * 2654435761U + 1U;
  for (float& v : result) {
    state = state * 1664525U + 1013904223U;
    v = static_cast<float>(state >> 27) - 16.0F;
  }
  return result;
}

std::vector<float> unwritten(Index count) {
  return std::vector<float>(static_cast<std::size_t>(count), NaN);
}

struct MaxResult {
  std::vector<float> y;
  std::vector<std::int32_t> index;
};

MaxResult max_pool(const Pool2dGeometry& g, const std::vector<float>& x) {
  MaxResult r{unwritten(g.y_size()),
              std::vector<std::int32_t>(static_cast<std::size_t>(g.y_size()), -1)};
  max_pool2d_forward<float>(g, x, r.y, r.index);
  return r;
}

std::vector<float> max_pool_backward(const Pool2dGeometry& g, const std::vector<float>& dy,
                                     const std::vector<std::int32_t>& index) {
  std::vector<float> dx = unwritten(g.x_size());
  max_pool2d_backward<float>(g, dy, index, dx);
  return dx;
}

/// Calls f(output offset, input offset or -1 when outside, tap is inside the padded image) for
/// every tap of every window.
template <class F>
void for_each_tap(const Pool2dGeometry& g, F&& f) {
  for (Index n = 0; n < g.batch; ++n)
    for (Index i = 0; i < g.out_height(); ++i)
      for (Index j = 0; j < g.out_width(); ++j)
        for (Index c = 0; c < g.channels; ++c)
          for (Index a = 0; a < g.kernel[0]; ++a)
            for (Index b = 0; b < g.kernel[1]; ++b) {
              const Index h = i * g.stride[0] + a * g.dilation[0] - g.padding[0];
              const Index w = j * g.stride[1] + b * g.dilation[1] - g.padding[1];
              const bool inside = h >= 0 && h < g.height && w >= 0 && w < g.width;
              f(((n * g.out_height() + i) * g.out_width() + j) * g.channels + c,
                inside ? ((n * g.height + h) * g.width + w) * g.channels + c : Index{-1},
                h < g.height + g.padding[0] && w < g.width + g.padding[1]);
            }
}

const Pool2dGeometry Sweep[] = {
    {2, 6, 4, 3, {2, 2}, {2, 2}},
    {1, 5, 7, 2, {2, 2}, {2, 2}},
    {1, 5, 7, 2, {2, 2}, {2, 2}, {0, 0}, {1, 1}, true},
    {2, 7, 6, 5, {3, 3}, {2, 2}, {1, 1}},
    {2, 7, 6, 9, {3, 3}, {2, 2}, {1, 1}, {1, 1}, true},
    {1, 5, 5, 17, {3, 3}, {1, 1}},
    {3, 6, 8, 33, {3, 2}, {1, 3}, {1, 0}},
    {2, 4, 4, 4, {3, 3}, {5, 5}, {1, 1}},
    {2, 9, 9, 8, {2, 2}, {3, 2}, {1, 1}, {1, 1}, true},
    {2, 4, 6, 7, {1, 1}, {1, 1}},
};

TEST(MaxPool, EqualsTheDefinition) {
  std::vector<Pool2dGeometry> geometries(std::begin(Sweep), std::end(Sweep));
  geometries.push_back({1, 8, 7, 2, {3, 2}, {2, 1}, {1, 0}, {1, 2}});
  geometries.push_back({2, 9, 9, 6, {2, 3}, {2, 2}, {1, 1}, {3, 2}, true});
  for (const Pool2dGeometry& g : geometries) {
    const std::vector<float> x = values(g.x_size(), 1);
    std::vector<float> y(static_cast<std::size_t>(g.y_size()), -Infinity);
    std::vector<Index> source(y.size(), -1);
    for_each_tap(g, [&](Index out, Index in, bool) {
      const auto o = static_cast<std::size_t>(out);
      if (in < 0 || !(x[static_cast<std::size_t>(in)] > y[o])) return;
      y[o] = x[static_cast<std::size_t>(in)];
      source[o] = in;
    });
    const std::vector<float> dy = values(g.y_size(), 2);
    std::vector<float> dx(x.size(), 0.0F);
    for (std::size_t o = 0; o < y.size(); ++o) dx[static_cast<std::size_t>(source[o])] += dy[o];

    test::for_each_simd_target([&] {
      const MaxResult r = max_pool(g, x);
      EXPECT_EQ(r.y, y);
      for (std::size_t o = 0; o < y.size(); ++o)
        ASSERT_EQ(r.index[o], source[o] / g.channels % (g.height * g.width));
      EXPECT_EQ(max_pool_backward(g, dy, r.index), dx);  // sums of small integers are exact
      std::vector<float> gathered = unwritten(g.y_size());
      max_pool2d_gather<float>(g, x, r.index, gathered);
      EXPECT_EQ(gathered, y);
    });
  }
}

TEST(MaxPool, NaNWinsAndTakesTheGradient) {  // CASES LS-10
  const Pool2dGeometry g{1, 2, 2, 1, {2, 2}, {2, 2}};
  for (std::size_t at = 0; at < 4; ++at) {
    std::vector<float> x{1, 2, 5, 6};
    x[at] = NaN;
    const MaxResult r = max_pool(g, x);
    EXPECT_TRUE(std::isnan(r.y[0]));
    EXPECT_EQ(r.index[0], static_cast<std::int32_t>(at));
    std::vector<float> dx(4, 0.0F);
    dx[at] = 3.0F;
    EXPECT_EQ(max_pool_backward(g, {3.0F}, r.index), dx);
  }
  EXPECT_EQ(max_pool(g, {1, NaN, NaN, 6}).index[0], 1) << "the first NaN wins";
}

TEST(MaxPool, FirstNaNOfEachChannelWinsWhateverItsLane) {
  const Pool2dGeometry g{2, 6, 6, 37, {3, 3}, {2, 2}, {1, 1}};
  std::vector<float> x = values(g.x_size(), 1);
  for (float& v : x)
    if (v == 3.0F || v == -7.0F) v = NaN;
  std::vector<Index> source(static_cast<std::size_t>(g.y_size()), -1);
  for_each_tap(g, [&](Index out, Index in, bool) {
    if (in < 0) return;
    Index& best = source[static_cast<std::size_t>(out)];
    const float value = x[static_cast<std::size_t>(in)];
    const float old = best < 0 ? -Infinity : x[static_cast<std::size_t>(best)];
    if (best < 0 || (!std::isnan(old) && (std::isnan(value) || value > old))) best = in;
  });
  test::for_each_simd_target([&] {
    const MaxResult r = max_pool(g, x);
    Index nans = 0;
    for (std::size_t o = 0; o < source.size(); ++o) {
      ASSERT_EQ(r.index[o], source[o] / g.channels % (g.height * g.width)) << o;
      nans += std::isnan(r.y[o]) ? 1 : 0;
    }
    EXPECT_GT(nans, 100);
  });
}

TEST(MaxPool, DoubleEqualsFloat) {
  for (const Pool2dGeometry& g : Sweep) {
    const std::vector<float> x = values(g.x_size(), 1), dy = values(g.y_size(), 2);
    const MaxResult r = max_pool(g, x);
    const std::vector<float> dx = max_pool_backward(g, dy, r.index);
    const std::vector<double> wide(x.begin(), x.end()), wide_dy(dy.begin(), dy.end());
    std::vector<double> y(r.y.size(), NaN), gathered(r.y.size(), NaN), wide_dx(x.size(), NaN);
    std::vector<std::int32_t> index(r.index.size(), -1);
    max_pool2d_forward<double>(g, wide, y, index);
    max_pool2d_backward<double>(g, wide_dy, index, wide_dx);
    max_pool2d_gather<double>(g, wide, index, gathered);
    EXPECT_EQ(index, r.index);
    EXPECT_EQ(y, std::vector<double>(r.y.begin(), r.y.end()));
    EXPECT_EQ(gathered, y);
    EXPECT_EQ(wide_dx, std::vector<double>(dx.begin(), dx.end()));
  }
}

TEST(MaxPool, NegativeInfinityHasAValidIndex) {  // CASES LS-10
  const Pool2dGeometry g{1, 2, 2, 1, {2, 2}, {2, 2}};
  const MaxResult r = max_pool(g, std::vector<float>(4, -Infinity));
  EXPECT_EQ(r.y[0], -Infinity);
  EXPECT_EQ(r.index[0], 0);
  EXPECT_EQ(max_pool_backward(g, {3.0F}, r.index), (std::vector<float>{3, 0, 0, 0}));
}

TEST(MaxPool, FirstMaximumWinsATie) {
  const Pool2dGeometry g{1, 3, 3, 1, {3, 3}, {1, 1}};
  EXPECT_EQ(max_pool(g, {0, 0, 7, 7, 0, 0, 7, 0, 7}).index[0], 2);
  const Pool2dGeometry padded{1, 2, 2, 1, {3, 3}, {1, 1}, {1, 1}};
  EXPECT_EQ(max_pool(padded, {-1, -1, -1, -1}).index, (std::vector<std::int32_t>{0, 0, 0, 0}));
}

TEST(AvgPool, EqualsTheDefinition) {
  for (const Pool2dGeometry& g : Sweep)
    for (const bool include : {true, false}) {
      const std::vector<float> x = values(g.x_size(), 1);
      const std::vector<float> dy = values(g.y_size(), 2);
      std::vector<double> sum(dy.size(), 0.0), count(dy.size(), 0.0), dx(x.size(), 0.0);
      for_each_tap(g, [&](Index out, Index in, bool padded) {
        const auto o = static_cast<std::size_t>(out);
        if (in >= 0) sum[o] += static_cast<double>(x[static_cast<std::size_t>(in)]);
        if (include ? padded : in >= 0) count[o] += 1;
      });
      for_each_tap(g, [&](Index out, Index in, bool) {
        const auto o = static_cast<std::size_t>(out);
        if (in >= 0) dx[static_cast<std::size_t>(in)] += static_cast<double>(dy[o]) / count[o];
      });
      std::vector<float> y = unwritten(g.y_size()), got = unwritten(g.x_size());
      avg_pool2d_forward<float>(g, include, x, y);
      avg_pool2d_backward<float>(g, include, dy, got);
      for (std::size_t o = 0; o < y.size(); ++o) EXPECT_NEAR(y[o], sum[o] / count[o], 1e-5);
      for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(got[i], dx[i], 2e-5);
    }
}

TEST(AvgPool, WindowOverTheEdgeDividesByItsPaddedPart) {
  const Pool2dGeometry g{1, 3, 3, 1, {2, 2}, {2, 2}, {0, 0}, {1, 1}, true};
  std::vector<float> y = unwritten(4);
  avg_pool2d_forward<float>(g, true, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9}, y);
  EXPECT_EQ(y, (std::vector<float>{3, 4.5F, 7.5F, 9}));
}

TEST(Pooling, BitsDoNotDependOnTheThreads) {  // CASES RT-01
  const Pool2dGeometry g{11, 20, 20, 24, {3, 3}, {2, 2}, {1, 1}};
  std::vector<float> x = values(g.x_size(), 1), dy = values(g.y_size(), 2);
  for (float& v : x) v *= 0.37F;
  for (float& v : dy) v *= 0.37F;
  const auto run = [&] {
    const MaxResult r = max_pool(g, x);
    std::vector<std::vector<float>> all{r.y, max_pool_backward(g, dy, r.index),
                                        unwritten(g.y_size()), unwritten(g.x_size())};
    avg_pool2d_forward<float>(g, true, x, all[2]);
    avg_pool2d_backward<float>(g, true, dy, all[3]);
    return all;
  };
  const int before = num_threads();
  set_num_threads(1);
  const auto want = run();
  for (const int threads : {2, 3, 8}) {
    set_num_threads(threads);
    EXPECT_EQ(run(), want) << threads << " threads";
  }
  set_num_threads(before);
}

TEST(Pooling, CeilModeKeepsOnlyWindowsThatStartInsideTheImage) {
  Pool2dGeometry g{1, 6, 5, 1, {4, 3}, {3, 3}, {1, 1}};
  EXPECT_EQ(g.out_height(), 2);
  EXPECT_EQ(g.out_width(), 2);
  g.ceil_mode = true;
  EXPECT_EQ(g.out_height(), 3);  // the third window starts at padded row 6, the last of the image
  EXPECT_EQ(g.out_width(), 2);   // there it would start at the trailing padding
}

TEST(Pooling, RefusesWindowsWithoutAPixel) {  // CASES LS-16
  const Pool2dGeometry wholly_padding{1, 1, 1, 1, {3, 3}, {3, 3}, {3, 3}};
  EXPECT_THROW(wholly_padding.check("max_pool2d"), ShapeError);
  // Dilation can step over a small image although padding <= kernel / 2.
  const Pool2dGeometry stepped_over{1, 4, 4, 1, {2, 2}, {1, 1}, {1, 1}, {5, 5}};
  EXPECT_THROW(stepped_over.check("max_pool2d"), ShapeError);
  const Pool2dGeometry too_large{1, 3, 3, 1, {4, 4}, {1, 1}};
  EXPECT_THROW(too_large.check("max_pool2d"), ShapeError);
  const Pool2dGeometry huge{1, 3, 3, 1, {Index{1} << 62, 2}, {1, 1}, {0, 0}, {2, 2}};
  EXPECT_THROW(huge.check("max_pool2d"), ShapeError);
  const Pool2dGeometry no_stride{1, 3, 3, 1, {2, 2}, {0, 1}};
  EXPECT_THROW(no_stride.check("max_pool2d"), ShapeError);
  const Pool2dGeometry dilated{1, 5, 5, 1, {2, 2}, {1, 1}, {0, 0}, {2, 2}};
  std::vector<float> y(9);
  EXPECT_THROW(avg_pool2d_forward<float>(dilated, true, std::vector<float>(25), y), ShapeError);
}

}  // namespace
}  // namespace steady::kernels
