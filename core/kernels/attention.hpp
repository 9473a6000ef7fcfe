#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace steady::kernels {

/// Dropout of attention weights: the weight of query i and key j in head h of batch b is dropped
/// where word ((b * heads + h) * queries + i) * keys + j is below `threshold`, else multiplied by
/// `scale`. threshold = 0: no dropout, no words drawn.
struct AttentionDropout {
  std::uint32_t threshold = 0;
  double scale = 1;
  /// Writes the words first, first + 1, ...; called by several threads at once.
  std::function<void(std::uint64_t first, std::span<std::uint32_t> words)> words{};
};

/// One call of scaled dot-product attention, token-major (no operand is ever permuted as a whole):
///   q, y: [batch, queries, heads, width];  k, v: [batch, capacity, kv_heads, width].
/// Query head h reads key head h / (heads / kv_heads). The first `keys` of the capacity are used.
struct Attention {
  std::int64_t batch = 0;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::int64_t capacity = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t width = 0;
  bool causal = false;  ///< query i sees keys j <= i + keys - queries
  double scale = 1;
  std::span<const std::uint8_t> keep{};  ///< [batch, keys], 0: nobody sees this key; empty: all
  AttentionDropout dropout{};
};

/// y = D(softmax(scale q k^T)) v over the keys that a query sees, D the dropout; zeros where it
/// sees none. lse: [batch, heads, queries], log(sum(exp(score))), -inf where there is no key; kept
/// in double so that backward is exact to float rounding at large scores. Works in blocks of
/// queries: the scores of one block and the keys of one head, transposed (in backward the values
/// too), are all that it needs in memory, for every thread.
template <class T>
void attention_forward(const Attention& a, std::span<const T> q, std::span<const T> k,
                       std::span<const T> v, std::span<T> y, std::span<double> lse);

/// With P = softmax recomputed from lse, dP = D(dy v^T) and dS = P (dP - rowsum(P dP)):
///   dq = scale dS k,   dk = scale dS^T q,   dv = D(P)^T dy,
/// summed over the query heads that share a key head, in their order, by one owner per key head:
/// the same bits for any number of threads. An empty dq, dk or dv is not computed.
template <class T>
void attention_backward(const Attention& a, std::span<const T> dy, std::span<const T> q,
                        std::span<const T> k, std::span<const T> v, std::span<const double> lse,
                        std::span<T> dq, std::span<T> dk, std::span<T> dv);

}  // namespace steady::kernels
