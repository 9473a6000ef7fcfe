#pragma once

#include <cstdint>
#include <span>
#include <steadygrad/core/kernels/attention.hpp>
#include <steadygrad/core/kernels/attention_rows.hpp>
#include <steadygrad/core/kernels/scratch.hpp>
#include <vector>

/// How attention is cut into blocks of queries, and the products of one block.
namespace steady::kernels {

/// The keys of one batch element from the first to one past the last that are not masked; `holes`:
/// some between them are. A query sees a key exactly when its range reaches beyond `first`.
struct KeyRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool holes = false;
};

/// One per batch element.
[[nodiscard]] std::vector<KeyRange> key_ranges(const Attention& a);

/// Some queries of one head against the keys they may see; the strip's columns are the keys from
/// `first_key` on.
struct AttentionBlock {
  std::int64_t batch;
  std::int64_t head;
  std::int64_t kv_head;
  std::int64_t first_query;
  std::int64_t first_key;
  bool holes;
  Strip strip;
};

/// Queries of one block: a function of the shape.
[[nodiscard]] std::int64_t attention_block_rows(const Attention& a);
/// Block number `index` of a head.
[[nodiscard]] AttentionBlock attention_block(const Attention& a, const KeyRange& range,
                                             std::int64_t batch, std::int64_t head,
                                             std::int64_t index);

/// The keys (or values) of one head that its blocks may see. A product of queries and keys packs
/// its right operand; transposed once for a head, packing does not transpose it for every block.
template <class T>
struct HeadKeys {
  std::span<const T> rows;     ///< the whole tensor
  std::span<const T> columns;  ///< [width, stride], from the first key on; empty if not needed
  std::int64_t stride = 0;
};

/// Transposes into `scratch`, whose next take() ends the result.
template <class T>
[[nodiscard]] HeadKeys<T> head_keys(const Attention& a, const KeyRange& range, std::int64_t batch,
                                    std::int64_t kv_head, std::span<const T> rows,
                                    Scratch& scratch);

/// The products of one block. Tensors are whole: a block reads and writes its rows in place.
/// Queries are rows of q, y and their gradients, keys rows of k, v and theirs; s is a strip.
template <class T>
class BlockProducts {
 public:
  BlockProducts(const Attention& a, const AttentionBlock& b) : a_(a), b_(b) {}

  /// s = alpha x y^T; x: queries, y: keys. A masked key between kept ones gets -inf if `masked`.
  void scores(T alpha, std::span<const T> x, const HeadKeys<T>& y, bool masked,
              std::span<T> s) const;
  /// y = s x; x: keys, y: queries.
  void to_queries(std::span<const T> s, std::span<const T> x, std::span<T> y) const;
  /// y = s^T x + beta y; x: queries, y: keys.
  void to_keys(std::span<const T> s, std::span<const T> x, T beta, std::span<T> y) const;
  /// y *= factor[row]; y: queries.
  void scale_queries(std::span<const T> factor, std::span<T> y) const;
  /// The factors of the dropout, 0 or its scale, for the keys that the block sees.
  void draw_dropout(std::span<T> keep) const;
  /// Index of the first query in [batch, heads, queries].
  [[nodiscard]] std::int64_t row() const {
    return (b_.batch * a_.heads + b_.head) * a_.queries + b_.first_query;
  }

 private:
  [[nodiscard]] std::int64_t query_stride() const { return a_.heads * a_.width; }
  [[nodiscard]] std::int64_t key_stride() const { return a_.kv_heads * a_.width; }
  [[nodiscard]] std::size_t query() const;
  [[nodiscard]] std::size_t key() const;
  void mask_holes(std::span<T> s) const;

  const Attention& a_;
  const AttentionBlock& b_;
};

}  // namespace steady::kernels
