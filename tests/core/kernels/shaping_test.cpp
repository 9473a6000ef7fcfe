#include <numeric>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/shaping.hpp>
#include <string>

#include "kernel_test.hpp"

namespace steady::kernels {
namespace {

using test::random_values;
using test::unwritten;
using Dims = std::vector<std::int64_t>;

/// permute element by element from its definition.
template <class T>
std::vector<T> permuted(const std::vector<T>& x, const Dims& dims, const std::vector<int>& axes) {
  Dims step(dims.size(), 1);
  for (std::size_t k = dims.size(); k-- > 1;) step[k - 1] = step[k] * dims[k];
  std::vector<T> y(x.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    auto index = static_cast<std::int64_t>(i);
    std::int64_t from = 0;
    for (std::size_t k = axes.size(); k-- > 0;) {
      const auto axis = static_cast<std::size_t>(axes[k]);
      from += index % dims[axis] * step[axis];
      index /= dims[axis];
    }
    y[i] = x[static_cast<std::size_t>(from)];
  }
  return y;
}

TEST(PermuteKernel, MatchesTheDefinition) {
  const std::vector<std::pair<Dims, std::vector<int>>> cases = {
      {{}, {}},
      {{5}, {0}},
      {{3, 4}, {1, 0}},
      {{3, 4}, {0, 1}},
      {{130, 257}, {1, 0}},
      {{1000, 3}, {1, 0}},
      {{3, 1000}, {1, 0}},
      {{2, 3, 17, 19}, {0, 2, 3, 1}},  // NCHW to NHWC
      {{2, 17, 19, 3}, {0, 3, 1, 2}},  // and back
      {{4, 33, 65}, {0, 2, 1}},
      {{4, 33, 6}, {1, 0, 2}},
      {{4, 3, 6}, {2, 1, 0}},
      {{4, 3, 6, 5}, {3, 1, 2, 0}},
      {{4, 3, 6, 5}, {2, 3, 0, 1}},
      {{1, 3, 1, 5}, {2, 3, 0, 1}},
      {{2, 2, 2, 2, 2, 2, 2, 2}, {7, 3, 5, 1, 0, 6, 2, 4}},
      {{3, 0, 2}, {2, 0, 1}},
  };
  for (const auto& [dims, axes] : cases) {
    const auto n = std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
    const auto x = random_values<float>(n, 1);
    auto y = unwritten<float>(n);
    permute<float>(x, dims, axes, y);
    EXPECT_EQ(y, permuted(x, dims, axes)) << ::testing::PrintToString(axes);
  }
  std::vector<std::int64_t> integers(6);
  std::vector<std::int64_t> out(6);
  std::iota(integers.begin(), integers.end(), 0);
  permute<std::int64_t>(integers, Dims{2, 3}, std::vector<int>{1, 0}, out);
  EXPECT_EQ(out, (std::vector<std::int64_t>{0, 3, 1, 4, 2, 5}));
}

TEST(PermuteKernel, RefusesAxesThatAreNoPermutation) {
  std::vector<float> x(6);
  std::vector<float> y(6);
  EXPECT_THROW(permute<float>(x, Dims{2, 3}, std::vector<int>{0, 0}, y), ShapeError);
  EXPECT_THROW(permute<float>(x, Dims{2, 3}, std::vector<int>{0, 2}, y), ShapeError);
  EXPECT_THROW(permute<float>(x, Dims{2, 3}, std::vector<int>{0}, y), ShapeError);
  EXPECT_THROW(permute<float>(x, Dims{2, 2}, std::vector<int>{1, 0}, y), Error);
}

TEST(CopyColumnsKernel, ConcatenatesAndTakesApart) {
  const std::vector<float> a = {1, 2, 3, 4};         // [2, 2]
  const std::vector<float> b = {5, 6, 7, 8, 9, 10};  // [2, 3]
  auto y = unwritten<float>(10);
  copy_columns<float>(a, 2, 0, y, 5, 0, 2, 2);
  copy_columns<float>(b, 3, 0, y, 5, 2, 2, 3);
  EXPECT_EQ(y, (std::vector<float>{1, 2, 5, 6, 7, 3, 4, 8, 9, 10}));
  auto back = unwritten<float>(6);
  copy_columns<float>(y, 5, 2, back, 3, 0, 2, 3);
  EXPECT_EQ(back, b);
  EXPECT_THROW(copy_columns<float>(a, 2, 1, y, 5, 0, 2, 2), Error);
  EXPECT_THROW(copy_columns<float>(a, 2, 0, y, 5, 4, 2, 2), Error);
}

TEST(SliceKernel, TakesSteppedElementsAndPutsThemBack) {
  const Slice s{.outer = 2, .extent = 5, .inner = 3, .start = 1, .step = 2, .count = 2};
  const auto x = random_values<float>(30, 2);
  auto y = unwritten<float>(12);
  slice<float>(x, s, y);
  auto dx = unwritten<float>(30);
  slice_backward<float>(y, s, dx);
  for (std::size_t o = 0; o < 2; ++o)
    for (std::size_t k = 0; k < 5; ++k)
      for (std::size_t i = 0; i < 3; ++i) {
        const std::size_t at = (o * 5 + k) * 3 + i;
        const bool taken = k == 1 || k == 3;
        EXPECT_EQ(dx[at], taken ? x[at] : 0.0F);
        EXPECT_TRUE(!taken || y[(o * 2 + (k - 1) / 2) * 3 + i] == x[at]);
      }
  Slice beyond = s;
  beyond.start = 3;
  EXPECT_THROW(slice<float>(x, beyond, y), Error);
  Slice backwards = s;
  backwards.step = 0;
  EXPECT_THROW(slice<float>(x, backwards, y), Error);
}

TEST(GatherKernel, RepeatedIndicesAddUpInOrder) {  // CASES LS-09
  const std::vector<std::int64_t> index = {1, 1, 2};
  std::vector<float> table(6, 0.0F);
  scatter_add_rows<float>(std::vector<float>{1, 2, 10, 20, 5, 6}, 3, 2, index, table);
  EXPECT_EQ(table, (std::vector<float>{0, 0, 11, 22, 5, 6}));
  auto y = unwritten<float>(6);
  gather_rows<float>(table, 3, 2, index, y);
  EXPECT_EQ(y, (std::vector<float>{11, 22, 11, 22, 5, 6}));
}

TEST(GatherKernel, BadIndicesAreNamedBeforeAnythingIsWritten) {  // CASES LS-09
  std::vector<float> table(6, 0.0F);
  auto y = unwritten<float>(4);
  for (const std::int64_t bad : {3, -1}) {
    const std::vector<std::int64_t> index = {1, bad};
    try {
      gather_rows<float>(table, 3, 2, index, y);
      FAIL();
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("index[1] = " + std::to_string(bad) + " with 3 rows"), std::string::npos)
          << text;
    }
    EXPECT_TRUE(y[0] != y[0]);
    EXPECT_THROW(scatter_add_rows<float>(std::vector<float>{1, 2, 3, 4}, 3, 2, index, table),
                 Error);
    EXPECT_EQ(table, std::vector<float>(6, 0.0F));
  }
}

TEST(GatherKernel, AnyNumberOfThreadsGivesTheSameBits) {
  const std::int64_t width = 500;
  const auto dy = random_values<float>(300 * width, 3);
  std::vector<std::int64_t> index(300);
  for (std::size_t m = 0; m < index.size(); ++m) index[m] = static_cast<std::int64_t>(m * m % 7);
  test::expect_thread_independent([&] {
    std::vector<float> table(7 * width, 0.5F);
    scatter_add_rows<float>(dy, 7, width, index, table);
    return table;
  });
}

}  // namespace
}  // namespace steady::kernels
