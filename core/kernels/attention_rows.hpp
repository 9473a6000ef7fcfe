#pragma once

#include <algorithm>
#include <cstdint>

/// The softmax part of attention on the scores of one block of queries; attention.cpp has the
/// products around it. float runs on the best SIMD target, with exp below -87.3 flushed to 0;
/// double is the plain loop.
namespace steady::kernels {

/// `rows` queries by `width` keys, row-major, rows `stride` apart. Row r sees its first
/// seen + r * step keys (held to 0 .. width).
struct Strip {
  std::int64_t rows;
  std::int64_t width;
  std::int64_t stride;
  std::int64_t seen;
  std::int64_t step;

  [[nodiscard]] std::int64_t visible(std::int64_t r) const {
    return std::clamp<std::int64_t>(seen + r * step, 0, width);
  }
};

/// s[r, j] = exp(s[r, j] - max_r) for the keys seen, 0 for the others; factor[r] = 1 / sum,
/// lse[r] = max + log(sum). A row that sees no key: factor 0, lse -inf.
void softmax_strip(const Strip& strip, float* s, float* factor, double* lse);
void softmax_strip(const Strip& strip, double* s, double* factor, double* lse);

/// s *= keep, for the keys seen.
void multiply_strip(const Strip& strip, const float* keep, float* s);
void multiply_strip(const Strip& strip, const double* keep, double* s);

/// In: scores s, dp = dy v^T, keep = factors of the dropout or null.
/// Out, with p = exp(s - lse):  s = p keep,  dp = scale p (dp keep - sum(p dp keep)); both 0 for
/// the keys that are not seen.
void softmax_strip_backward(const Strip& strip, const double* lse, float scale, const float* keep,
                            float* s, float* dp);
void softmax_strip_backward(const Strip& strip, const double* lse, double scale, const double* keep,
                            double* s, double* dp);

/// The products of a single query, for which a matrix product is too much of a call. Keys are rows
/// of `width` elements, `stride` apart.
/// s[j] = scale q . k[j, :]
void score_query(const float* q, const float* k, std::int64_t stride, std::int64_t keys,
                 std::int64_t width, float scale, float* s);
/// y[c] = sum_j s[j] v[j, c]
void weigh_values(const float* s, const float* v, std::int64_t stride, std::int64_t keys,
                  std::int64_t width, float* y);

}  // namespace steady::kernels
