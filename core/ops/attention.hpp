#pragma once

#include <cstdint>
#include <steadygrad/core/tensor.hpp>
#include <string_view>

namespace steady {

/// Options of attention.
struct AttentionOptions {
  bool causal = false;  ///< query i sees keys j <= i + Tk - Tq: the queries are the last ones
  Tensor mask = {};     ///< [B, Tk], i32 or i64: keys that may be seen are not 0. Undefined: all
  double scale = 0;     ///< factor of the scores; 0: 1 / sqrt(d)
  double dropout = 0;   ///< probability that a weight is dropped, in [0, 1)
  std::uint64_t seed =
      0;  ///< of the dropout's draws: a function of (seed, stream, call) as dropout
  std::string_view stream = "attention";
  std::uint64_t call = 0;  ///< numbers the uses of one stream, below 2^28
  std::int64_t keys = 0;   ///< only the first `keys` positions of k, v and mask are used, as of a
                           ///< cache with room to grow; 0: all. Tk is this number
};

/// Scaled dot-product attention with grouped-query heads   [Vaswani et al. 2017; Ainslie et al.
/// 2023]
///   y[b, i, h] = sum_j D(softmax_j(scale q[b, i, h] . k[b, j, g])) v[b, j, g],   g = h / (H / Hkv)
/// over the keys j that are not masked and, when causal, not in the query's future; D is the
/// dropout. q, y: [B, Tq, H, d]; k, v: [B, Tk, Hkv, d], H a multiple of Hkv; f32 or f64. A query
/// that may see no key gets zeros and passes no gradient. A NaN or an infinity in a key or value
/// may reach queries that do not see it (0 * NaN), but not from before the first or behind the last
/// key that the mask keeps. The weights are never stored: backward computes them again from a saved
/// log-sum-exp, block by block. Differentiable to any order (a recorded backward is made of plain
/// operations). Throws ShapeError for shapes and dtypes, Error for a dropout outside [0, 1), a
/// negative scale and a call number that is too large.
[[nodiscard]] Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                               const AttentionOptions& options = {});

/// The same made of matmul, softmax and where, with the whole [B, H, Tq, Tk] in memory: the
/// reference for tests, differentiable to any order.
[[nodiscard]] Tensor composed_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                        const AttentionOptions& options = {});

}  // namespace steady
