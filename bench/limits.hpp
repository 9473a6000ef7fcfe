#pragma once

#include <cstdint>

// What a norm's memory accesses, or its arithmetic, take by themselves: loops on one thread, one
// row after the other, with plain stores and nothing fetched ahead unless `large`, on the SIMD
// target that the kernels use. A kernel that has to do as much in that order cannot be faster.

namespace steady::bench {

/// x, dy, out: rows x width floats. gamma, dgamma, dbeta: width floats.
struct LimitArrays {
  std::int64_t rows, width;
  const float *x, *dy, *gamma;
  float *out, *dgamma, *dbeta;
};

/// LayerNorm's forward over short rows: out of a row, and the sums over the row after the next one
/// that its mean and variance come from, in float and without regard to what they lose there.
///   out = (x - mean) * rstd * gamma + beta (dbeta's memory),  sum of x - c,  sum of (x - c)^2
float limit_layer_norm_forward(const LimitArrays& a);

/// Its four loads and one store, with three additions.
float limit_layer_norm_forward_memory(const LimitArrays& a);

/// LayerNorm's backward over short rows with the statistics given: dx and the sums of dgamma and
/// dbeta of a row, and the two sums over the next row that its dx depends on.
///   xhat = (x - mean) * rstd,  w = gamma * dy,  out = rstd * (w - m(w) - xhat * m(w xhat))
///   dgamma += dy * xhat,  dbeta += dy,  sum of w,  sum of w * (x - mean)
float limit_layer_norm(const LimitArrays& a);

/// Its eight loads and three stores, with one addition each.
float limit_layer_norm_memory(const LimitArrays& a);

/// Its arithmetic as often, on values and sums in registers.
float limit_layer_norm_arithmetic(const LimitArrays& a);

/// A norm in two passes over a row, or a sample, that a cache may hold for the second one. Forward:
/// the sum of x, then out = x. Backward: the sum of x * dy, then out = x + dy / 2. `large`: written
/// past the caches, the next row being fetched meanwhile.
float limit_read_copy(const LimitArrays& a, bool large);
float limit_read_triad(const LimitArrays& a, bool large);

/// The same two passes with the arithmetic of a norm, one statistic for each row.
///   forward: sum of x - c, sum of (x - c)^2;  out = (x - mean) * rstd + shift
///   backward: sum of dy, sum of dy * (x - c);  out = a * dy + b * (x - mean) + shift
float limit_norm_forward(const LimitArrays& a);
float limit_norm_backward(const LimitArrays& a);

/// Softmax: the sum of exp(x - shift) of the first row, `rows` times.
float limit_exponentials(const LimitArrays& a);

/// The loads and stores of softmax's three passes over a row: the largest element of x; x to a row
/// of working memory (dgamma), from there to out.
float limit_softmax_memory(const LimitArrays& a);

}  // namespace steady::bench
