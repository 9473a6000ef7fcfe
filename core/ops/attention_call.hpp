#pragma once

#include <array>
#include <cstdint>
#include <steadygrad/core/ops/attention.hpp>
#include <steadygrad/core/random.hpp>

/// What attention and its composed form share.
namespace steady::detail {

/// The scalars of one call, checked; captured by backwards. The dropout drops where a word, counted
/// from first_word, is below `threshold`.
struct AttentionCall {
  std::int64_t batch, queries, keys, capacity, heads, kv_heads, width;
  bool causal;
  double scale;
  Random stream;
  std::uint64_t first_word;
  std::uint32_t threshold;
  double keep_scale;
};

/// Throws for everything that attention refuses.
[[nodiscard]] AttentionCall check_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                            const AttentionOptions& options);

/// `mask` as in the options.
[[nodiscard]] Tensor composed_forward(const AttentionCall& call, const Tensor& q, const Tensor& k,
                                      const Tensor& v, const Tensor& mask);

/// dq, dk and dv, differentiable by all of dy, q, k and v.
[[nodiscard]] std::array<Tensor, 3> composed_backward(const AttentionCall& call, const Tensor& dy,
                                                      const Tensor& q, const Tensor& k,
                                                      const Tensor& v, const Tensor& mask);

}  // namespace steady::detail
