#include <cblas.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/gemm.hpp>
#include <steadygrad/core/kernels/onednn.hpp>
#include <steadygrad/core/kernels/prepared_product.hpp>
#include <steadygrad/core/parallel.hpp>
#include <type_traits>

namespace steady::kernels {
namespace {

using Index = std::int64_t;

std::atomic<bool> library_sgemm{true};

[[nodiscard]] bool may_use_onednn() { return library_sgemm.load(std::memory_order_relaxed); }

/// OpenBLAS keeps one thread pool for the process; ours is the only one that may run.
void keep_openblas_serial() {
  static const bool once = [] {
    openblas_set_num_threads(1);
    return true;
  }();
  (void)once;
}

/// The shape with every leading dimension filled in.
[[nodiscard]] GemmShape dense(const GemmShape& shape) {
  GemmShape s = shape;
  if (s.lda == 0) s.lda = std::max<Index>(1, s.transpose_a ? s.m : s.k);
  if (s.ldb == 0) s.ldb = std::max<Index>(1, s.transpose_b ? s.k : s.n);
  if (s.ldc == 0) s.ldc = std::max<Index>(1, s.n);
  return s;
}

/// Elements from the first to one past the last of a stored matrix.
[[nodiscard]] Index footprint(Index rows, Index columns, Index ld) {
  return rows == 0 || columns == 0 ? 0 : (rows - 1) * ld + columns;
}

struct Footprints {
  Index a, b, c;
};

[[nodiscard]] Footprints footprints(const GemmShape& s) {
  return {s.transpose_a ? footprint(s.k, s.m, s.lda) : footprint(s.m, s.k, s.lda),
          s.transpose_b ? footprint(s.n, s.k, s.ldb) : footprint(s.k, s.n, s.ldb),
          footprint(s.m, s.n, s.ldc)};
}

void check(const GemmShape& s) {
  STEADY_CHECK(ShapeError, s.m >= 0 && s.n >= 0 && s.k >= 0,
               "gemm: sizes must not be negative; got m {}, n {}, k {}", s.m, s.n, s.k);
  STEADY_CHECK(
      ShapeError,
      s.lda >= (s.transpose_a ? s.m : s.k) && s.ldb >= (s.transpose_b ? s.k : s.n) && s.ldc >= s.n,
      "gemm: a leading dimension is shorter than its row; got m {}, n {}, k {}, lda {}, "
      "ldb {}, ldc {}",
      s.m, s.n, s.k, s.lda, s.ldb, s.ldc);
  constexpr Index Limit = std::numeric_limits<blasint>::max();
  STEADY_CHECK(ShapeError, std::max({s.m, s.n, s.k, s.lda, s.ldb, s.ldc}) <= Limit,
               "gemm: a size exceeds the library's integer ({}); got m {}, n {}, k {}, lda {}, "
               "ldb {}, ldc {}",
               Limit, s.m, s.n, s.k, s.lda, s.ldb, s.ldc);
}

void check_buffer(const char* name, std::size_t got, Index footprint, Index stride, Index count) {
  const Index want = footprint == 0 || count == 0 ? 0 : (count - 1) * stride + footprint;
  STEADY_CHECK(ShapeError, got >= static_cast<std::size_t>(want),
               "gemm: {} is too short; needs {} elements, got {}", name, want, got);
}

/// beta * C, with beta = 0 overwriting.
template <class T>
void scale(const GemmShape& s, T beta, T* c) {
  for (Index i = 0; i < s.m; ++i) {
    T* row = c + i * s.ldc;
    if (beta == T{0}) {
      std::fill_n(row, s.n, T{0});
    } else {
      for (Index j = 0; j < s.n; ++j) row[j] *= beta;
    }
  }
}

[[nodiscard]] CBLAS_TRANSPOSE blas(bool transpose) { return transpose ? CblasTrans : CblasNoTrans; }

void multiply(const GemmShape& s, double alpha, const double* a, const double* b, double beta,
              double* c) {
  cblas_dgemm(CblasRowMajor, blas(s.transpose_a), blas(s.transpose_b), static_cast<blasint>(s.m),
              static_cast<blasint>(s.n), static_cast<blasint>(s.k), alpha, a,
              static_cast<blasint>(s.lda), b, static_cast<blasint>(s.ldb), beta, c,
              static_cast<blasint>(s.ldc));
}

void multiply(const GemmShape& s, float alpha, const float* a, const float* b, float beta,
              float* c) {
  if (may_use_onednn() && onednn_prefers_sgemm(s)) {
    onednn_sgemm(s, alpha, a, b, beta, c);
    return;
  }
  cblas_sgemm(CblasRowMajor, blas(s.transpose_a), blas(s.transpose_b), static_cast<blasint>(s.m),
              static_cast<blasint>(s.n), static_cast<blasint>(s.k), alpha, a,
              static_cast<blasint>(s.lda), b, static_cast<blasint>(s.ldb), beta, c,
              static_cast<blasint>(s.ldc));
}

/// Multiply-adds that are worth a task of their own: about 10 microseconds.
constexpr Index SmallestWork = Index{1} << 20;

/// Rows and columns of one tile of C.
struct Tile {
  Index m, n;
};

/// Cuts C until there are at least eight tiles or a tile is the smallest task; the
/// longer side is halved first, because square tiles repack the operands least. A function of the
/// shape alone.
[[nodiscard]] Tile tile(const GemmShape& s) {
  constexpr Index Step = 16;  // one AVX-512 vector of floats
  const auto half = [](Index extent) { return ((extent + 1) / 2 + Step - 1) / Step * Step; };
  Tile t{s.m, s.n};
  for (int cuts = 0; cuts < 3 && t.m * t.n * s.k / 2 >= SmallestWork; ++cuts) {
    Index& longer = t.m >= t.n ? t.m : t.n;
    if (longer <= Step) break;
    longer = half(longer);
  }
  return t;
}

template <class T>
void multiply_tile(const GemmShape& s, const Tile& t, Index row, Index column, T alpha, const T* a,
                   const T* b, T beta, T* c) {
  GemmShape part = s;
  part.m = std::min(t.m, s.m - row);
  part.n = std::min(t.n, s.n - column);
  multiply(part, alpha, a + (s.transpose_a ? row : row * s.lda),
           b + (s.transpose_b ? column * s.ldb : column), beta, c + row * s.ldc + column);
}

/// Every row of C: [m, n] becomes `row`.
template <class T>
void fill_rows(const GemmShape& s, std::span<const T> row, std::span<T> c) {
  constexpr Index ChunkElements = 16384;
  if (s.n == 0) return;
  parallel_for(s.m, ChunkElements / s.n, [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) std::ranges::copy(row, c.begin() + r * s.ldc);
  });
}

template <class T>
void products(const GemmShape& s, const GemmBatch& batch, T alpha, const T* a, const T* b, T beta,
              T* c) {
  if (s.m == 0 || s.n == 0) return;
  if (s.k == 0) {
    for (Index i = 0; i < batch.count; ++i) scale(s, beta, c + i * batch.c);
    return;
  }
  if constexpr (std::is_same_v<T, float>) {
    if (batch.count == 1 && may_use_onednn() && prepared_product(s, alpha, a, b, beta, nullptr, c))
      return;
  }
  const Tile t = tile(s);
  const Index columns = (s.n + t.n - 1) / t.n;
  const Index tiles = columns * ((s.m + t.m - 1) / t.m);
  const Index together = std::max<Index>(1, SmallestWork / 2 / (t.m * t.n * s.k));
  parallel_for(batch.count * tiles, together, [&](Index begin, Index end) {
    for (Index task = begin; task < end; ++task) {
      const Index i = task / tiles;
      const Index part = task % tiles;
      multiply_tile(s, t, part / columns * t.m, part % columns * t.n, alpha, a + i * batch.a,
                    b + i * batch.b, beta, c + i * batch.c);
    }
  });
}

}  // namespace

template <std::floating_point T>
void gemm(const GemmShape& shape, T alpha, std::span<const T> a, std::span<const T> b, T beta,
          std::span<T> c) {
  gemm_batched(shape, GemmBatch{}, alpha, a, b, beta, c);
}

template <std::floating_point T>
void gemm_batched(const GemmShape& shape, const GemmBatch& batch, T alpha, std::span<const T> a,
                  std::span<const T> b, T beta, std::span<T> c) {
  const GemmShape s = dense(shape);
  check(s);
  const Footprints size = footprints(s);
  STEADY_CHECK(ShapeError,
               batch.count >= 0 && batch.a >= 0 && batch.b >= 0 &&
                   (batch.count <= 1 || batch.c >= std::min(size.c, s.n)),
               "gemm: the products of a batch must write apart; got count {}, strides {}, {}, {}",
               batch.count, batch.a, batch.b, batch.c);
  check_buffer("a", a.size(), size.a, batch.a, batch.count);
  check_buffer("b", b.size(), size.b, batch.b, batch.count);
  check_buffer("c", c.size(), size.c, batch.c, batch.count);
  keep_openblas_serial();
  products(s, batch, alpha, a.data(), b.data(), beta, c.data());
}

template <std::floating_point T>
void gemm_bias(const GemmShape& shape, std::span<const T> a, std::span<const T> b,
               std::span<const T> bias, std::span<T> c) {
  const GemmShape s = dense(shape);
  check(s);
  const Footprints size = footprints(s);
  check_buffer("a", a.size(), size.a, 0, 1);
  check_buffer("b", b.size(), size.b, 0, 1);
  check_buffer("bias", bias.size(), s.n, 0, 1);
  check_buffer("c", c.size(), size.c, 0, 1);
  if constexpr (std::is_same_v<T, float>) {
    if (s.m > 0 && may_use_onednn() &&
        prepared_product(s, 1, a.data(), b.data(), 0, bias.data(), c.data()))
      return;
  }
  fill_rows<T>(s, bias.first(static_cast<std::size_t>(s.n)), c);
  gemm<T>(s, T{1}, a, b, T{1}, c);
}

template void gemm<float>(const GemmShape&, float, std::span<const float>, std::span<const float>,
                          float, std::span<float>);
template void gemm<double>(const GemmShape&, double, std::span<const double>,
                           std::span<const double>, double, std::span<double>);
template void gemm_batched<float>(const GemmShape&, const GemmBatch&, float, std::span<const float>,
                                  std::span<const float>, float, std::span<float>);
template void gemm_batched<double>(const GemmShape&, const GemmBatch&, double,
                                   std::span<const double>, std::span<const double>, double,
                                   std::span<double>);

template void gemm_bias(const GemmShape&, std::span<const float>, std::span<const float>,
                        std::span<const float>, std::span<float>);
template void gemm_bias(const GemmShape&, std::span<const double>, std::span<const double>,
                        std::span<const double>, std::span<double>);

namespace {

void check_transpose(Index rows, Index columns, Index ldx, Index ldy) {
  STEADY_CHECK(ShapeError,
               std::max({rows, columns, ldx, ldy}) <= std::numeric_limits<blasint>::max() &&
                   rows >= 1 && columns >= 1 && ldx >= columns && ldy >= rows,
               "transpose: sizes must be at least 1 and fit the library's integer, rows must not "
               "overlap; got {} rows, {} columns, ldx {}, ldy {}",
               rows, columns, ldx, ldy);
}

}  // namespace

void transpose(std::int64_t rows, std::int64_t columns, const float* x, std::int64_t ldx, float* y,
               std::int64_t ldy) {
  check_transpose(rows, columns, ldx, ldy);
  cblas_somatcopy(CblasRowMajor, CblasTrans, static_cast<blasint>(rows),
                  static_cast<blasint>(columns), 1.0F, x, static_cast<blasint>(ldx), y,
                  static_cast<blasint>(ldy));
}

void transpose(std::int64_t rows, std::int64_t columns, const double* x, std::int64_t ldx,
               double* y, std::int64_t ldy) {
  check_transpose(rows, columns, ldx, ldy);
  cblas_domatcopy(CblasRowMajor, CblasTrans, static_cast<blasint>(rows),
                  static_cast<blasint>(columns), 1.0, x, static_cast<blasint>(ldx), y,
                  static_cast<blasint>(ldy));
}

bool set_library_sgemm(bool enabled) { return library_sgemm.exchange(enabled); }

std::string gemm_libraries() {
  keep_openblas_serial();
  const int kind = openblas_get_parallel();
  return fmt::format("{}, {}, {} thread; {}", openblas_get_config(),
                     kind == 0   ? "serial"
                     : kind == 1 ? "pthreads"
                                 : "OpenMP",
                     openblas_get_num_threads(), onednn_name());
}

}  // namespace steady::kernels
