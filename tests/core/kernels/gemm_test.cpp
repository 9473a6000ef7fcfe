#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <span>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/gemm.hpp>
#include <steadygrad/core/parallel.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/sanitizer.hpp"

namespace steady::kernels {
namespace {

using Index = std::int64_t;

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

/// Operands with leading dimensions `pad` longer than the rows.
template <class T>
struct Problem {
  Problem(Index m, Index n, Index k, bool ta, bool tb, Index pad) {
    s = {m, n, k, ta, tb, (ta ? m : k) + pad, (tb ? k : n) + pad, n + pad};
    a = values<T>((ta ? k : m) * s.lda, 1);
    b = values<T>((tb ? n : k) * s.ldb, 2);
    c = values<T>(m * s.ldc, 3);
  }

  /// Largest error relative to the sum of magnitudes of its element; the padding must survive.
  [[nodiscard]] double error(T alpha, T beta, const std::vector<T>& got) const {
    double worst = 0;
    for (Index i = 0; i < s.m; ++i)
      for (Index j = 0; j < s.ldc; ++j) {
        const auto at = static_cast<std::size_t>(i * s.ldc + j);
        if (j >= s.n) {
          if (got[at] != c[at]) return std::numeric_limits<double>::infinity();
          continue;
        }
        double sum = 0, magnitude = 0;
        for (Index p = 0; p < s.k; ++p) {
          const auto ai = static_cast<std::size_t>(s.transpose_a ? p * s.lda + i : i * s.lda + p);
          const auto bi = static_cast<std::size_t>(s.transpose_b ? j * s.ldb + p : p * s.ldb + j);
          const double term = static_cast<double>(a[ai]) * static_cast<double>(b[bi]);
          sum += term;
          magnitude += std::abs(term);
        }
        const double old =
            beta == T{0} ? 0.0 : static_cast<double>(beta) * static_cast<double>(c[at]);
        const double want = static_cast<double>(alpha) * sum + old;
        const double scale =
            std::abs(static_cast<double>(alpha)) * magnitude + std::abs(old) + 1e-30;
        const double e = std::abs(static_cast<double>(got[at]) - want) / scale;
        if (!(e <= worst)) worst = std::isnan(e) ? std::numeric_limits<double>::infinity() : e;
      }
    return worst;
  }

  GemmShape s;
  std::vector<T> a, b, c;
};

template <class T>
class Gemm : public testing::Test {
 protected:
  void TearDown() override {
    set_num_threads(threads_);
    set_library_sgemm(true);
  }

 private:
  int threads_ = num_threads();
};
using Precisions = testing::Types<float, double>;
TYPED_TEST_SUITE(Gemm, Precisions);

TYPED_TEST(Gemm, EqualsTheNaiveProduct) {
  using T = TypeParam;
  const double tolerance = 16 * static_cast<double>(std::numeric_limits<T>::epsilon());
  for (const auto& [m, n, k] : {std::array<Index, 3>{1, 1, 1},
                                {3, 5, 7},
                                {1, 33, 64},
                                {65, 1, 10},
                                {64, 64, 64},
                                {17, 130, 31},
                                {257, 65, 96},
                                {40, 200, 300},
                                // Of as much work as copies of the operands need, with AVX2 alone:
                                {260, 300, 130},
                                {390, 70, 160},
                                {137, 1100, 33}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const Index pad : {Index{0}, Index{3}})
          for (const bool library : {true, false}) {
            set_library_sgemm(library);
            const Problem<T> p(m, n, k, ta, tb, pad);
            std::vector<T> c = p.c;
            gemm<T>(p.s, T(0.5), p.a, p.b, T(-2), c);
            EXPECT_LE(p.error(T(0.5), T(-2), c), tolerance)
                << m << "x" << n << "x" << k << " " << ta << tb << " pad " << pad;
          }
}

TYPED_TEST(Gemm, DenseLeadingDimensionsAreTheDefault) {
  using T = TypeParam;
  Problem<T> p(5, 6, 7, true, true, 0);
  std::vector<T> c = p.c;
  gemm<T>({.m = 5, .n = 6, .k = 7, .transpose_a = true, .transpose_b = true}, T(1), p.a, p.b, T(1),
          c);
  EXPECT_LE(p.error(T(1), T(1), c), 16 * static_cast<double>(std::numeric_limits<T>::epsilon()));
}

TYPED_TEST(Gemm, BetaZeroDoesNotReadTheOldResult) {
  using T = TypeParam;
  for (const bool library : {true, false})
    for (const Index size : {Index{8}, Index{100}}) {
      set_library_sgemm(library);
      const Problem<T> p(size, size, size, false, false, 0);
      std::vector<T> c(p.c.size(), std::numeric_limits<T>::quiet_NaN());
      gemm<T>(p.s, T(1), p.a, p.b, T(0), c);
      EXPECT_LE(p.error(T(1), T(0), c),
                16 * static_cast<double>(std::numeric_limits<T>::epsilon()));
    }
}

// Shapes whose right operand float32 packs once, the last in panels of columns; rows are left over.
TYPED_TEST(Gemm, ManyRowsTimesATransposedOperandWithAndWithoutBias) {
  using T = TypeParam;
  const double tolerance = 16 * static_cast<double>(std::numeric_limits<T>::epsilon());
  for (const auto& [m, n, k] :
       {std::array<Index, 3>{549, 70, 65}, {2049, 64, 64}, {130, 64, 400}, {129, 1100, 1000}})
    for (const Index pad : {Index{0}, Index{3}})
      for (const bool library : {true, false}) {
        set_library_sgemm(library);
        Problem<T> p(m, n, k, false, true, pad);
        const std::vector<T> bias = values<T>(n, 4);
        std::vector<T> plain = p.c;
        for (Index i = 0; i < m; ++i)
          for (Index j = 0; j < n; ++j) {
            const auto at = static_cast<std::size_t>(i * p.s.ldc + j);
            plain[at] = std::numeric_limits<T>::quiet_NaN();
            p.c[at] = bias[static_cast<std::size_t>(j)];
          }
        std::vector<T> biased = plain;
        gemm<T>(p.s, T(1), p.a, p.b, T(0), plain);
        EXPECT_LE(p.error(T(1), T(0), plain), tolerance) << m << "x" << n << "x" << k;
        gemm_bias<T>(p.s, p.a, p.b, bias, biased);
        EXPECT_LE(p.error(T(1), T(1), biased), tolerance) << m << "x" << n << "x" << k;
      }
}

// Gradients of a weight: k is cut where C is small, and C computed as its transpose where it has
// few columns, both with AVX2 alone.
TYPED_TEST(Gemm, TransposedOperandOfManyRows) {
  using T = TypeParam;
  const double tolerance = 16 * static_cast<double>(std::numeric_limits<T>::epsilon());
  for (const auto& [m, n, k] :
       {std::array<Index, 3>{200, 130, 1100}, {130, 260, 1100}, {300, 260, 600}})
    for (const Index pad : {Index{0}, Index{3}})
      for (const T beta : {T(0), T(-2)}) {
        const Problem<T> p(m, n, k, true, false, pad);
        const auto run = [&](int threads) {
          set_num_threads(threads);
          std::vector<T> c = p.c;
          if (beta == T(0)) std::ranges::fill(c, std::numeric_limits<T>::quiet_NaN());
          gemm<T>(p.s, T(0.5), p.a, p.b, beta, c);
          for (std::size_t i = 0; i < c.size(); ++i)  // between the rows of C nothing is written
            if (static_cast<Index>(i) % p.s.ldc >= p.s.n && std::isnan(c[i])) c[i] = p.c[i];
          return c;
        };
        const std::vector<T> want = run(1);
        EXPECT_LE(p.error(T(0.5), beta, want), tolerance)
            << m << "x" << n << "x" << k << " pad " << pad << " beta " << beta;
        for (const int threads : {2, 3}) EXPECT_EQ(run(threads), want) << threads << " threads";
      }
}

TYPED_TEST(Gemm, BiasOfEmptyAndOfWrongSizes) {
  using T = TypeParam;
  const std::vector<T> bias{1, 2};
  std::vector<T> c(6, T(9));
  gemm_bias<T>({.m = 3, .n = 2, .k = 0}, {}, {}, bias, c);
  EXPECT_EQ(c, (std::vector<T>{1, 2, 1, 2, 1, 2}));
  gemm_bias<T>({.m = 0, .n = 2, .k = 2}, {}, c, bias, {});
  EXPECT_THAT([&] { gemm_bias<T>({.m = 1, .n = 3, .k = 1}, c, c, bias, c); },
              testing::ThrowsMessage<ShapeError>(
                  testing::HasSubstr("bias is too short; needs 3 elements, got 2")));
  EXPECT_EQ(c, (std::vector<T>{1, 2, 1, 2, 1, 2}));
}

TYPED_TEST(Gemm, TransposesAPartOfAMatrix) {
  using T = TypeParam;
  const std::vector<T> x = values<T>(Index{70} * 40, 1);  // rows of 40, of which 33 are taken
  std::vector<T> y(Index{33} * 80, T(9));
  transpose(70, 33, x.data(), 40, y.data(), 80);
  for (std::size_t j = 0; j < 33; ++j)
    for (std::size_t i = 0; i < 80; ++i)
      ASSERT_EQ(y[j * 80 + i], i < 70 ? x[i * 40 + j] : T(9)) << i << ", " << j;
  EXPECT_THROW(transpose(70, 33, x.data(), 32, y.data(), 80), ShapeError);
  EXPECT_THROW(transpose(70, 33, x.data(), 40, y.data(), Index{1} << 31), ShapeError);
}

TYPED_TEST(Gemm, BitsOfAPackedOperandDependNeitherOnThreadsNorOnAnEnclosingLoop) {
  using T = TypeParam;
  const Problem<T> p(549, 70, 65, false, true, 0);
  const std::vector<T> bias = values<T>(p.s.n, 4);
  const auto run = [&](bool with_bias) {
    std::vector<T> c = p.c;
    if (with_bias)
      gemm_bias<T>(p.s, p.a, p.b, bias, c);
    else
      gemm<T>(p.s, T(1), p.a, p.b, T(0), c);
    return c;
  };
  for (const bool with_bias : {false, true}) {
    set_num_threads(1);
    const std::vector<T> want = run(with_bias);
    for (const int threads : {2, 3, 8}) {
      set_num_threads(threads);
      EXPECT_EQ(run(with_bias), want) << threads << " threads";
      std::vector<std::vector<T>> inside(8);
      parallel_for(8, 1,
                   [&](Index i, Index) { inside[static_cast<std::size_t>(i)] = run(with_bias); });
      for (const std::vector<T>& c : inside) EXPECT_EQ(c, want) << threads << " threads, inside";
    }
  }
}

TYPED_TEST(Gemm, EmptySizes) {
  using T = TypeParam;
  std::vector<T> c{1, 2, 3, 4};
  gemm<T>({.m = 2, .n = 2, .k = 0}, T(1), {}, {}, T(3), c);
  EXPECT_EQ(c, (std::vector<T>{3, 6, 9, 12}));
  gemm<T>({.m = 0, .n = 2, .k = 2}, T(1), {}, c, T(0), {});
  gemm<T>({.m = 2, .n = 0, .k = 2}, T(1), c, {}, T(0), {});
  EXPECT_EQ(c, (std::vector<T>{3, 6, 9, 12}));
  c[1] = std::numeric_limits<T>::quiet_NaN();
  gemm<T>({.m = 2, .n = 2, .k = 0}, T(1), {}, {}, T(0), c);
  EXPECT_EQ(c, (std::vector<T>{0, 0, 0, 0}));
}

TYPED_TEST(Gemm, BitsDependNeitherOnThreadsNorOnAnEnclosingLoop) {  // CASES RT-01, RT-02
  using T = TypeParam;
  for (const auto& [m, n, k, ta] : {std::tuple<Index, Index, Index, bool>{300, 200, 256, false},
                                    {300, 200, 256, true},
                                    {200, 700, 96, true}}) {
    const Problem<T> p(m, n, k, ta, !ta, 0);
    const auto run = [&] {
      std::vector<T> c = p.c;
      gemm<T>(p.s, T(1), p.a, p.b, T(1), c);
      return c;
    };
    set_num_threads(1);
    const std::vector<T> want = run();
    for (const int threads : {2, 3, 8}) {
      set_num_threads(threads);
      EXPECT_EQ(run(), want) << threads << " threads";
      std::vector<std::vector<T>> inside(8);
      parallel_for(8, 1, [&](Index i, Index) { inside[static_cast<std::size_t>(i)] = run(); });
      for (const std::vector<T>& c : inside) EXPECT_EQ(c, want) << threads << " threads, inside";
    }
  }
}

TYPED_TEST(Gemm, BatchEqualsSingleProductsAlsoWhenAnOperandIsShared) {
  using T = TypeParam;
  constexpr Index M = 9, N = 12, K = 20, Count = 7;
  const GemmShape s{.m = M, .n = N, .k = K};
  const std::vector<T> a = values<T>(Count * M * K, 1);
  const std::vector<T> b = values<T>(Count * K * N, 2);
  for (const bool share_a : {false, true})
    for (const bool share_b : {false, true}) {
      std::vector<T> got(static_cast<std::size_t>(Count * M * N));
      std::vector<T> want(got.size());
      const GemmBatch batch{Count, share_a ? 0 : M * K, share_b ? 0 : K * N, M * N};
      gemm_batched<T>(s, batch, T(1), a, b, T(0), got);
      for (Index i = 0; i < Count; ++i)
        gemm<T>(s, T(1), std::span<const T>(a).subspan(static_cast<std::size_t>(i * batch.a)),
                std::span<const T>(b).subspan(static_cast<std::size_t>(i * batch.b)), T(0),
                std::span<T>(want).subspan(static_cast<std::size_t>(i * batch.c)));
      EXPECT_EQ(got, want);
    }
}

TYPED_TEST(Gemm, BatchOfLargeProductsIsTiledAndBitwiseStable) {
  using T = TypeParam;
  constexpr Index Size = 160, Count = 3;
  const std::vector<T> a = values<T>(Count * Size * Size, 1);
  const std::vector<T> b = values<T>(Size * Size, 2);
  const auto run = [&](const GemmBatch& batch, Index first) {
    std::vector<T> c(static_cast<std::size_t>(batch.count * Size * Size));
    gemm_batched<T>({.m = Size, .n = Size, .k = Size}, batch, T(1),
                    std::span<const T>(a).subspan(static_cast<std::size_t>(first * Size * Size)), b,
                    T(0), c);
    return c;
  };
  std::vector<T> want;
  for (Index i = 0; i < Count; ++i) {
    const std::vector<T> one = run({1, 0, 0, 0}, i);
    want.insert(want.end(), one.begin(), one.end());
  }
  for (const int threads : {1, 2, 3, 8}) {
    set_num_threads(threads);
    EXPECT_EQ(run({Count, Size * Size, 0, Size * Size}, 0), want) << threads << " threads";
  }
}

TYPED_TEST(Gemm, BatchOfInterleavedHeads) {
  using T = TypeParam;
  // Heads share a row: head i of [rows, heads * width] starts at i * width and has ld heads *
  // width.
  constexpr Index Rows = 6, Heads = 3, Width = 4;
  const std::vector<T> q = values<T>(Rows * Heads * Width, 1);
  const std::vector<T> v = values<T>(Heads * Width * Width, 2);
  std::vector<T> got(q.size(), std::numeric_limits<T>::quiet_NaN());
  gemm_batched<T>({.m = Rows, .n = Width, .k = Width, .lda = Heads * Width, .ldc = Heads * Width},
                  {Heads, Width, Width * Width, Width}, T(1), q, v, T(0), got);
  for (Index r = 0; r < Rows; ++r)
    for (Index h = 0; h < Heads; ++h)
      for (Index j = 0; j < Width; ++j) {
        double want = 0;
        for (Index p = 0; p < Width; ++p)
          want += static_cast<double>(q[static_cast<std::size_t>((r * Heads + h) * Width + p)]) *
                  static_cast<double>(v[static_cast<std::size_t>((h * Width + p) * Width + j)]);
        EXPECT_NEAR(got[static_cast<std::size_t>((r * Heads + h) * Width + j)], want, 1e-6);
      }
}

TYPED_TEST(Gemm, GivesTheSameBitsInAForkedChild) {  // CASES RT-02
  using T = TypeParam;
  const Problem<T> p(300, 200, 256, false, false, 0);
  const auto run = [&] {
    std::vector<T> c = p.c;
    gemm<T>(p.s, T(1), p.a, p.b, T(1), c);
    return c;
  };
  set_num_threads(8);
  const std::vector<T> want = run();
  std::fflush(nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const int code = run() == want ? 0 : 1;
    // What the vanished workers owned would count as leaked, and their threads as unknown.
    if (test::under_address_sanitizer() || test::under_thread_sanitizer()) _exit(code);
    std::exit(code);  // runs the pool's destructor
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(run(), want);
}

TEST(GemmLibraries, NamesThemAndKeepsOpenBlasAtOneThread) {  // CASES RT-02
  const std::string report = gemm_libraries();
  EXPECT_THAT(report, testing::HasSubstr("OpenBLAS"));
  EXPECT_THAT(report, testing::HasSubstr(" 1 thread; oneDNN "));
}

TEST(GemmChecks, RefusesWhatDoesNotFit) {
  std::vector<float> a(100), b(100), c(100);
  const auto run = [&](const GemmShape& s, const GemmBatch& batch = {}) {
    gemm_batched<float>(s, batch, 1.0F, a, b, 0.0F, c);
  };
  EXPECT_NO_THROW(run({.m = 10, .n = 10, .k = 10}));
  EXPECT_THROW(run({.m = 11, .n = 10, .k = 10}), ShapeError);
  EXPECT_THROW(run({.m = -1, .n = 10, .k = 10}), ShapeError);
  EXPECT_THROW(run({.m = 5, .n = 5, .k = 5, .lda = 4}), ShapeError);
  EXPECT_THROW(run({.m = 5, .n = 5, .k = 5}, {5, 25, 25, 25}), ShapeError);
  EXPECT_THROW(run({.m = 5, .n = 5, .k = 5}, {2, 25, 25, 0}), ShapeError);
  // CASES RT-13: beyond the 32-bit integers of the library.
  EXPECT_THROW(run({.m = 1, .n = 1, .k = 1, .lda = Index{1} << 31}), ShapeError);
}

}  // namespace
}  // namespace steady::kernels
