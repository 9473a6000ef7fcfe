#pragma once

#include <cstdint>
#include <steadygrad/core/tensor.hpp>
#include <vector>

namespace steady {

/// The keys and values of the tokens that a decoder has seen, layer by layer, so that the next
/// token costs one token's work. A value of the caller's: the model keeps nothing. Buffers are made
/// once, [batch, capacity, kv_heads, head_dim] per layer, when the layer first writes; after that
/// nothing is allocated for them. For inference: what needs a gradient is refused.
class KeyValueCache {
 public:
  /// Room for `capacity` tokens in each of `layers` layers. Throws Error for either below 1.
  KeyValueCache(std::int64_t layers, std::int64_t capacity);

  [[nodiscard]] std::int64_t layers() const { return std::ssize(entries_); }
  [[nodiscard]] std::int64_t capacity() const { return capacity_; }
  /// Tokens held.
  [[nodiscard]] std::int64_t length() const { return length_; }
  /// Forgets every token and keeps the memory.
  void clear() { length_ = 0; }

  struct Entry {
    Tensor keys;
    Tensor values;
  };
  /// Writes the keys and values of new tokens, [batch, new, kv_heads, head_dim], behind those held,
  /// and returns the buffers: [batch, capacity, kv_heads, head_dim], the first length() + new
  /// tokens of which are valid. The length stays until advance(): every layer writes at the same
  /// place. Throws Error when there is no room or no such layer, and for tensors that need a
  /// gradient; ShapeError for other shapes than before.
  [[nodiscard]] const Entry& append(std::int64_t layer, const Tensor& keys, const Tensor& values);
  /// Counts tokens that every layer has written.
  void advance(std::int64_t tokens);

 private:
  std::int64_t capacity_;
  std::int64_t length_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace steady
