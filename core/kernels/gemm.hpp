#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>

/// Matrix products of row-major matrices: C = alpha * op(A) * op(B) + beta * C.
/// op(A): [m, k], op(B): [k, n], C: [m, n]; op is the identity or the transpose.
///
/// The library underneath (OpenBLAS, for float32 also oneDNN) always runs on one thread; the
/// product is cut into tiles of C whose size depends on its shape alone, and where k is cut, its
/// parts are added in their order: the bits do not depend on the thread count, nor on being called
/// inside another parallel loop.
namespace steady::kernels {

/// Sizes and storage of one product. A leading dimension is the distance between the starts of two
/// stored rows; 0 means dense.
struct GemmShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transpose_a = false;  ///< A is stored [k, m]
  bool transpose_b = false;  ///< B is stored [n, k]
  std::int64_t lda = 0;
  std::int64_t ldb = 0;
  std::int64_t ldc = 0;
};

/// Distances, in elements, between the matrices of consecutive products; 0 for a or b uses the same
/// matrix for every product.
struct GemmBatch {
  std::int64_t count = 1;
  std::int64_t a = 0;
  std::int64_t b = 0;
  std::int64_t c = 0;
};

/// One product. With beta = 0 the old C is not read (NaN does not survive); with k = 0 the result
/// is beta * C. C must not overlap A or B. Throws ShapeError for a negative size, a leading
/// dimension shorter than a row, a buffer that is too short, or a size beyond the library's
/// integer.
template <std::floating_point T>
void gemm(const GemmShape& shape, T alpha, std::span<const T> a, std::span<const T> b, T beta,
          std::span<T> c);

/// `batch.count` products of one shape, in parallel over the batch and the tiles. The matrices of C
/// must not overlap.
template <std::floating_point T>
void gemm_batched(const GemmShape& shape, const GemmBatch& batch, T alpha, std::span<const T> a,
                  std::span<const T> b, T beta, std::span<T> c);

/// C = op(A) * op(B) + bias, the bias [n] added to every row. Errors as for gemm().
template <std::floating_point T>
void gemm_bias(const GemmShape& shape, std::span<const T> a, std::span<const T> b,
               std::span<const T> bias, std::span<T> c);

/// y[j, i] = x[i, j] for i < rows, j < columns; the rows of x are ldx elements apart, those of y
/// ldy. On the calling thread. Throws ShapeError for sizes below 1, rows that overlap, and sizes
/// beyond the library's integer.
void transpose(std::int64_t rows, std::int64_t columns, const float* x, std::int64_t ldx, float* y,
               std::int64_t ldy);
void transpose(std::int64_t rows, std::int64_t columns, const double* x, std::int64_t ldx,
               double* y, std::int64_t ldy);

/// Whether float32 products may use oneDNN where it is the faster library (default true). Returns
/// the previous setting.
bool set_library_sgemm(bool enabled);

/// The libraries in use, for the head of a log: OpenBLAS with its configuration, its threading
/// (serial, pthreads or OpenMP) and the number of threads it may use (one), then oneDNN.
[[nodiscard]] std::string gemm_libraries();

}  // namespace steady::kernels
