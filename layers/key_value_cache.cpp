#include <steadygrad/layers/key_value_cache.hpp>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/shaping.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady {
namespace {

/// Puts `part`, [batch, new, ...], into `buffer`, [batch, capacity, ...], at token `first`.
void write(const Tensor& part, Tensor& buffer, std::int64_t first) {
  const std::int64_t width = part.shape().numel(2, part.rank());
  dispatch_float("KeyValueCache", part.dtype(), [&]<FloatElement T>() {
    kernels::copy_columns<T>(part.data<T>(), part.dim(1) * width, 0,
                             buffer.mutable_data<T>("KeyValueCache"), buffer.dim(1) * width,
                             first * width, part.dim(0), part.dim(1) * width);
  });
}

}  // namespace

KeyValueCache::KeyValueCache(std::int64_t layers, std::int64_t capacity) : capacity_(capacity) {
  STEADY_CHECK(Error, layers >= 1 && capacity >= 1,
               "KeyValueCache: layers and capacity must be at least 1; got {} and {}", layers,
               capacity);
  entries_.resize(static_cast<std::size_t>(layers));
}

const KeyValueCache::Entry& KeyValueCache::append(std::int64_t layer, const Tensor& keys,
                                                  const Tensor& values) {
  STEADY_CHECK(Error, layer >= 0 && layer < layers(), "KeyValueCache: has {} layers; got layer {}",
               layers(), layer);
  STEADY_CHECK(Error, !needs_gradient(keys) && !needs_gradient(values),
               "KeyValueCache: is for inference, and the keys need a gradient: end the tape, or "
               "hold a NoRecord");
  STEADY_CHECK(ShapeError, keys.rank() == 4 && keys.shape() == values.shape(),
               "KeyValueCache: keys and values must be [batch, new, heads, dim]; got {}, {}",
               describe(keys), describe(values));
  const std::int64_t total = length_ + keys.dim(1);
  STEADY_CHECK(Error, total <= capacity_, "KeyValueCache: has room for {} tokens; {} held, {} more",
               capacity_, length_, keys.dim(1));
  Entry& entry = entries_[static_cast<std::size_t>(layer)];
  const Shape shape = keys.shape().with(1, capacity_);
  if (length_ == 0 && (!entry.keys.defined() || entry.keys.shape() != shape ||
                       entry.keys.dtype() != keys.dtype())) {
    entry = {Tensor::empty(shape, keys.dtype()), Tensor::empty(shape, keys.dtype())};
  }
  STEADY_CHECK(
      ShapeError,
      entry.keys.defined() && entry.keys.shape() == shape && entry.keys.dtype() == keys.dtype(),
      "KeyValueCache: keys must fit those held; got {}, held {}", describe(keys),
      describe(entry.keys));
  write(keys, entry.keys, length_);
  write(values, entry.values, length_);
  return entry;
}

void KeyValueCache::advance(std::int64_t tokens) {
  STEADY_CHECK(Error, tokens >= 0 && length_ + tokens <= capacity_,
               "KeyValueCache: has room for {} tokens; {} held, {} more", capacity_, length_,
               tokens);
  length_ += tokens;
}

}  // namespace steady
