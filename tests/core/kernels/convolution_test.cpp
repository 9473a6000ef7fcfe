#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <span>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/convolution.hpp>
#include <steadygrad/core/kernels/simd_target.hpp>
#include <steadygrad/core/parallel.hpp>
#include <string>
#include <vector>

#include "kernel_test.hpp"

namespace steady::kernels {
namespace {

using Index = std::int64_t;
using test::in;
using test::same_bits;
using test::unwritten;

/// Fixed pseudo-random values in (-1, 1).
template <class T>
std::vector<T> values(Index count, std::uint32_t seed) {
  std::vector<T> result(static_cast<std::size_t>(count));
  std::uint32_t state = seed * 2654435761U + 1U;
  for (T& v : result) {
    state = state * 1664525U + 1013904223U;
    v = static_cast<T>(state >> 8) / static_cast<T>(1U << 23) - T{1};
  }
  return result;
}

/// Everything one geometry computes; `bare` is y without a bias.
template <class T>
struct Results {
  std::vector<T> y, bare, dx, dw, db;
};

template <class T>
struct Problem {
  explicit Problem(const Conv2dGeometry& geometry)
      : g(geometry),
        x(values<T>(g.x_size(), 1)),
        w(values<T>(g.weight_size(), 2)),
        bias(values<T>(g.out_channels, 3)),
        dy(values<T>(g.y_size(), 4)) {}

  [[nodiscard]] Results<T> run() const {
    Results<T> r{unwritten<T>(g.y_size()), unwritten<T>(g.y_size()), unwritten<T>(g.x_size()),
                 unwritten<T>(g.weight_size()), unwritten<T>(g.out_channels)};
    conv2d_forward<T>(g, x, w, bias, r.y);
    conv2d_forward<T>(g, x, w, {}, r.bare);
    conv2d_backward_input<T>(g, dy, w, r.dx);
    conv2d_backward_weight<T>(g, x, dy, r.dw, r.db);
    return r;
  }

  /// The defining sums, in double.
  [[nodiscard]] Results<double> expected() const {
    Results<double> r{std::vector<double>(dy.size()), std::vector<double>(dy.size()),
                      std::vector<double>(x.size()), std::vector<double>(w.size()),
                      std::vector<double>(bias.size())};
    const Index in_group = g.in_channels / g.groups;
    const Index out_group = g.out_channels / g.groups;
    std::size_t at = 0;
    for (Index n = 0; n < g.batch; ++n)
      for (Index i = 0; i < g.out_height(); ++i)
        for (Index j = 0; j < g.out_width(); ++j)
          for (Index k = 0; k < g.out_channels; ++k, ++at) {
            const auto kk = static_cast<std::size_t>(k);
            r.db[kk] += static_cast<double>(dy[at]);
            for (Index c = 0; c < in_group; ++c)
              for (Index a = 0; a < g.kernel[0]; ++a)
                for (Index b = 0; b < g.kernel[1]; ++b) {
                  const Index h = i * g.stride[0] + a * g.dilation[0] - g.padding[0];
                  const Index v = j * g.stride[1] + b * g.dilation[1] - g.padding[1];
                  if (h < 0 || h >= g.height || v < 0 || v >= g.width) continue;
                  const auto xi =
                      static_cast<std::size_t>(((n * g.height + h) * g.width + v) * g.in_channels +
                                               k / out_group * in_group + c);
                  const auto wi = static_cast<std::size_t>(
                      ((k * in_group + c) * g.kernel[0] + a) * g.kernel[1] + b);
                  r.bare[at] += static_cast<double>(x[xi]) * static_cast<double>(w[wi]);
                  r.dx[xi] += static_cast<double>(dy[at]) * static_cast<double>(w[wi]);
                  r.dw[wi] += static_cast<double>(dy[at]) * static_cast<double>(x[xi]);
                }
            r.y[at] = r.bare[at] + static_cast<double>(bias[kk]);
          }
    return r;
  }

  Conv2dGeometry g;
  std::vector<T> x, w, bias, dy;
};

/// |got - want| <= tolerance * max|want|; NaN fails.
template <class T>
void expect_close(const std::vector<T>& got, const std::vector<double>& want, double tolerance,
                  const char* what) {
  ASSERT_EQ(got.size(), want.size());
  double scale = 0;
  for (const double v : want) scale = std::max(scale, std::abs(v));
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - want[i]);
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
  }
  EXPECT_LE(worst, tolerance * scale) << what;
}

template <class T>
void expect_close(const Results<T>& got, const Results<double>& want, double tolerance) {
  expect_close(got.y, want.y, tolerance, "y");
  expect_close(got.bare, want.bare, tolerance, "y without bias");
  expect_close(got.dx, want.dx, tolerance, "dx");
  expect_close(got.dw, want.dw, tolerance, "dw");
  expect_close(got.db, want.db, tolerance, "db");
}

template <class T>
void expect_same_bits(const Results<T>& a, const Results<T>& b, const std::string& what) {
  EXPECT_TRUE(same_bits(a.y, b.y)) << "y, " << what;
  EXPECT_TRUE(same_bits(a.bare, b.bare)) << "y without bias, " << what;
  EXPECT_TRUE(same_bits(a.dx, b.dx)) << "dx, " << what;
  EXPECT_TRUE(same_bits(a.dw, b.dw)) << "dw, " << what;
  EXPECT_TRUE(same_bits(a.db, b.db)) << "db, " << what;
}

/// Restores the thread count and the library switch.
class Convolution : public testing::Test {
 protected:
  void TearDown() override {
    set_num_threads(threads_);
    set_library_convolution(library_);
  }

 private:
  int threads_ = num_threads();
  bool library_ = library_convolution();
};

struct NamedGeometry {
  const char* name;
  Conv2dGeometry g;
};
void PrintTo(const NamedGeometry& named, std::ostream* out) { *out << named.name; }

const NamedGeometry Sweep[] = {
    {"k3_p1", {2, 6, 5, 3, 4, {3, 3}, {1, 1}, {1, 1}}},
    {"k1", {2, 3, 3, 4, 5}},
    {"k1_s2", {2, 5, 5, 4, 3, {1, 1}, {2, 2}}},
    {"k2_s2_patches", {2, 6, 6, 3, 5, {2, 2}, {2, 2}}},
    {"k3_s2_p1_floor", {2, 8, 7, 3, 4, {3, 3}, {2, 2}, {1, 1}}},
    {"k5_s3_p2", {1, 9, 8, 2, 3, {5, 5}, {3, 3}, {2, 2}}},
    {"asymmetric", {2, 7, 6, 2, 3, {3, 2}, {2, 1}, {1, 0}, {1, 2}}},
    {"k3_dilated", {1, 7, 6, 2, 3, {3, 3}, {1, 1}, {2, 2}, {2, 2}}},
    {"kernel_is_image", {2, 4, 3, 3, 2, {4, 3}}},
    {"groups2", {2, 5, 5, 4, 6, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2}},  // CASES LS-17
    {"groups2_s2_dil2", {1, 8, 8, 4, 4, {3, 3}, {2, 2}, {1, 1}, {2, 2}, 2}},
    {"depthwise_times2", {2, 5, 6, 3, 6, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 3}},
    // Of as many pixels as a pass needs to be run as the other pass of the turned convolution.
    {"many_k3_p0", {16, 10, 9, 16, 32, {3, 3}, {1, 1}, {0, 0}}},
    {"many_k3_p2", {16, 10, 9, 16, 32, {3, 3}, {1, 1}, {2, 2}}},
    {"many_asymmetric", {16, 10, 9, 16, 32, {3, 5}, {1, 1}, {0, 2}}},
    {"many_k1", {16, 10, 9, 16, 32}},
    {"first_layer", {19, 10, 9, 1, 32, {3, 3}, {1, 1}, {1, 1}}},
    {"rgb", {9, 8, 8, 3, 16, {3, 3}, {1, 1}, {1, 1}}},
    {"odd_batch", {21, 7, 7, 16, 24, {3, 3}, {1, 1}, {1, 1}}},
    {"stride2_wide", {8, 8, 8, 16, 32, {3, 3}, {2, 2}, {1, 1}}},
    {"projection", {8, 8, 8, 16, 32, {1, 1}, {2, 2}}},
    {"row_kernel", {3, 5, 9, 8, 8, {1, 7}, {1, 1}, {0, 3}}},
    // Weight gradients from panels, where there is AVX2 and no AVX-512: several blocks of rows, one
    // row longer than a block, rows a multiple of 1 KiB apart, a window that leaves columns over.
    {"panels_blocks", {9, 45, 20, 4, 16, {3, 3}, {1, 1}, {1, 1}}},
    {"panels_long_row", {2, 3, 450, 2, 16, {3, 3}, {1, 1}, {1, 1}}},
    {"panels_apart", {3, 5, 14, 16, 32, {3, 3}, {1, 1}, {1, 1}}},
    {"panels_stride", {3, 11, 10, 6, 16, {2, 3}, {3, 2}, {1, 2}}},
    {"panels_one_tall", {3, 4, 7, 2, 48, {1, 3}, {1, 3}, {0, 1}}},
    {"panels_mostly_padding", {2, 1, 1, 2, 16, {5, 3}, {1, 1}, {4, 3}}},
    {"padding_beyond_kernel", {2, 4, 4, 3, 2, {2, 2}, {1, 1}, {3, 3}}},
    {"grouped_wide", {4, 6, 6, 32, 32, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 4}},
};

class ConvolutionSweep : public testing::TestWithParam<NamedGeometry> {
 protected:
  void TearDown() override { set_library_convolution(true); }
};

TEST_P(ConvolutionSweep, DoubleEqualsTheDefinition) {
  const Problem<double> problem(GetParam().g);
  expect_close(problem.run(), problem.expected(), 1e-13);
}

TEST_P(ConvolutionSweep, FloatEqualsTheDefinitionWithAndWithoutTheLibrary) {  // CASES RT-04
  const Problem<float> problem(GetParam().g);
  const Results<double> want = problem.expected();
  // Sums of at most 2000 products of size 1: rounding stays below 1e-5 of the largest.
  test::for_each_simd_target([&] { expect_close(problem.run(), want, 1e-5); });
  set_library_convolution(false);
  expect_close(problem.run(), want, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Geometries, ConvolutionSweep, testing::ValuesIn(Sweep),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(Convolution, InputGradientWhenTheStrideDoesNotDivide) {  // CASES LS-12
  const Conv2dGeometry g{1, 8, 8, 1, 1, {5, 5}, {3, 3}, {1, 1}};
  const std::vector<float> x(64, 1.0F), w(25, 1.0F), dy(4, 1.0F);
  std::vector<float> dx = unwritten<float>(64), dw = unwritten<float>(25);
  conv2d_backward_input<float>(g, dy, w, dx);
  conv2d_backward_weight<float>(g, x, dy, dw, {});
  EXPECT_EQ(g.out_height(), 2);
  EXPECT_EQ(g.out_width(), 2);
  const std::vector<float> row{1, 1, 2, 2, 1, 1, 1, 0};
  const std::vector<float> scale{1, 1, 2, 2, 1, 1, 1, 0};
  for (std::size_t i = 0; i < 8; ++i)
    for (std::size_t j = 0; j < 8; ++j)
      EXPECT_EQ(dx[i * 8 + j], scale[i] * row[j]) << i << "," << j;
  for (std::size_t i = 0; i < 5; ++i)
    for (std::size_t j = 0; j < 5; ++j)
      EXPECT_EQ(dw[i * 5 + j], (i == 0 ? 1.0F : 2.0F) * (j == 0 ? 1.0F : 2.0F)) << i << "," << j;
}

TEST_F(Convolution, DepthwiseWeightGradientForEveryChannelCount) {  // CASES LS-13
  for (Index channels = 1; channels <= 33; ++channels) {
    const Conv2dGeometry g{1, 6, 6, channels, channels, {3, 3}, {2, 2}, {1, 1}, {1, 1}, channels};
    const std::vector<float> x(static_cast<std::size_t>(g.x_size()), 1.0F);
    const std::vector<float> dy(static_cast<std::size_t>(g.y_size()), 1.0F);
    std::vector<float> dw = unwritten<float>(g.weight_size());
    conv2d_backward_weight<float>(g, x, dy, dw, {});
    const std::vector<float> plane{4, 6, 6, 6, 9, 9, 6, 9, 9};
    for (std::size_t e = 0; e < dw.size(); ++e)
      ASSERT_EQ(dw[e], plane[e % 9]) << "channels " << channels << ", element " << e;
    const Problem<float> problem(g);
    expect_close(problem.run(), problem.expected(), 1e-5);
  }
}

TEST_F(Convolution, BitsDoNotDependOnTheThreads) {  // CASES RT-01
  for (const Conv2dGeometry& g :
       {Conv2dGeometry{19, 9, 9, 16, 32, {3, 3}, {1, 1}, {1, 1}},
        Conv2dGeometry{32, 12, 12, 1, 32, {3, 3}, {1, 1}, {1, 1}},
        Conv2dGeometry{5, 8, 8, 24, 24, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 24}}) {
    const Problem<float> problem(g);
    const Problem<double> precise(g);
    set_num_threads(1);
    const Results<float> one = problem.run();
    const Results<double> one_precise = precise.run();
    for (const int threads : {2, 3, 8}) {
      set_num_threads(threads);
      expect_same_bits(problem.run(), one, std::to_string(threads) + " threads");
      expect_same_bits(precise.run(), one_precise, std::to_string(threads) + " threads, double");
    }
  }
}

// A oneDNN weight gradient divides its work by the threads present when it was made: made with two
// and run inside a parallel region it returns half of the sum and reports success.
TEST_F(Convolution, InsideAParallelLoopEqualsOutside) {  // CASES RT-03
  for (const int threads : {2, 8}) {
    set_num_threads(threads);
    // A geometry of its own per round, so that its primitives are made where it runs first.
    const Problem<float> first_inside({17, 8, 8, 16, 16 + 8 * threads, {3, 3}, {1, 1}, {1, 1}});
    const Problem<float> first_outside({16, 8, 8, 16, 20 + 8 * threads, {3, 3}, {1, 1}, {1, 1}});
    const Results<float> outside = first_outside.run();
    std::vector<Results<float>> inside(8);
    parallel_for(8, 1, [&](Index i, Index) {
      inside[static_cast<std::size_t>(i)] = (i < 4 ? first_inside : first_outside).run();
    });
    const Results<float> afterwards = first_inside.run();
    for (std::size_t i = 0; i < 8; ++i)
      expect_same_bits(inside[i], i < 4 ? afterwards : outside, "call " + std::to_string(i));
    expect_close(afterwards, first_inside.expected(), 1e-5);
    expect_close(outside, first_outside.expected(), 1e-5);
  }
}

TEST_F(Convolution, TheLibraryServesCommonGeometriesAndCanBeSwitchedOff) {  // CASES RT-04, LS-17
  const Conv2dGeometry image{20, 14, 14, 64, 64, {3, 3}, {1, 1}, {1, 1}};
  Conv2dGeometry grouped = image, depthwise = image, first = image;
  grouped.groups = 2;
  depthwise.groups = 64;
  first.in_channels = 1;
  for (const ConvolutionPass pass :
       {ConvolutionPass::Forward, ConvolutionPass::BackwardInput, ConvolutionPass::BackwardWeight})
    for (const Conv2dGeometry& g : {image, grouped, depthwise, first}) {
      const bool bias = pass == ConvolutionPass::Forward;
      set_library_convolution(true);
      EXPECT_NE(conv2d_implementation(pass, g, bias), "reference") << g.groups;
      const auto forward = conv2d_implementation(ConvolutionPass::Forward, g, false);
      if (pass == ConvolutionPass::BackwardInput && g == image && forward.starts_with("brg")) {
        EXPECT_EQ(conv2d_implementation(pass, g, bias), forward);
      }
      if (pass == ConvolutionPass::BackwardWeight) {
        EXPECT_EQ(conv2d_implementation(pass, g, bias) == "panels",
                  g == image && simd_target() == std::string_view("AVX2"));
      }
      set_library_convolution(false);
      EXPECT_EQ(conv2d_implementation(pass, g, bias), "reference");
    }
}

TEST_F(Convolution, PanelsRefuseImagesThatAreAlmostAllPadding) {
  for (const Index far : {Index{100'000}, (Index{1} << 31) - 2}) {
    const Conv2dGeometry g{1, 1, 1, 2, 16, {3, 3}, {far, far}, {far, far}};
    EXPECT_NE(conv2d_implementation(ConvolutionPass::BackwardWeight, g, false), "panels") << far;
    const Problem<float> problem(g);
    expect_close(problem.run(), problem.expected(), 1e-5);
  }
}

TEST_F(Convolution, EmptyBatchHasZeroWeightGradient) {
  const Conv2dGeometry g{0, 4, 4, 2, 3, {3, 3}};
  const Results<float> r = Problem<float>(g).run();
  for (const float v : r.dw) EXPECT_EQ(v, 0.0F);
  for (const float v : r.db) EXPECT_EQ(v, 0.0F);
}

TEST_F(Convolution, InputsStayUntouched) {
  const Problem<float> problem({9, 6, 6, 8, 16, {3, 3}, {1, 1}, {1, 1}});
  const Problem<float> copy = problem;
  (void)problem.run();
  EXPECT_TRUE(same_bits(problem.x, copy.x) && same_bits(problem.w, copy.w) &&
              same_bits(problem.bias, copy.bias) && same_bits(problem.dy, copy.dy));
}

TEST_F(Convolution, RefusesGeometriesThatMakeNoSense) {
  const Conv2dGeometry good{1, 5, 5, 4, 6, {3, 3}};
  EXPECT_NO_THROW(good.check());
  const auto bad = [&](auto change) {
    Conv2dGeometry g = good;
    change(g);
    return g;
  };
  EXPECT_THROW(bad([](auto& g) { g.groups = 3; }).check(), ShapeError);
  EXPECT_THROW(bad([](auto& g) { g.groups = 0; }).check(), ShapeError);
  EXPECT_THROW(bad([](auto& g) { g.kernel[1] = 6; }).check(), ShapeError);
  EXPECT_THROW(bad([](auto& g) { g.kernel[0] = 0; }).check(), ShapeError);
  EXPECT_THROW(bad([](auto& g) { g.stride[0] = 0; }).check(), ShapeError);
  EXPECT_THROW(bad([](auto& g) { g.dilation[1] = 0; }).check(), ShapeError);
  EXPECT_THROW(bad([](auto& g) { g.padding[0] = -1; }).check(), ShapeError);
  EXPECT_THROW(bad([](auto& g) { g.batch = Index{1} << 62; }).check(), ShapeError);
  EXPECT_THROW(bad([](auto& g) { g.dilation[0] = Index{1} << 62; }).check(), ShapeError);
  EXPECT_THROW(bad([](auto& g) { g.padding[1] = Index{1} << 62; }).check(), ShapeError);
  EXPECT_THROW(bad([](auto& g) { g.height = Index{1} << 62; }).check(), ShapeError);
  const std::vector<float> x(100), w(216), bias(6), short_bias(5);
  std::vector<float> y(54);
  EXPECT_NO_THROW(conv2d_forward<float>(good, x, w, bias, y));
  EXPECT_THROW(conv2d_forward<float>(good, x, w, short_bias, y), ShapeError);
  EXPECT_THROW(conv2d_forward<float>(good, in(x).first(99), w, bias, y), ShapeError);
}

}  // namespace
}  // namespace steady::kernels
