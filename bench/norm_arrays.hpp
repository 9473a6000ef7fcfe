#pragma once

#include <cstdint>
#include <span>
#include <steadygrad/core/tensor.hpp>

namespace steady::bench {

/// n values in [-1, 1] in memory of the library's allocator, as its tensors have it.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::int64_t n)
      : tensor_(Tensor::empty({n}, sizeof(T) == 4 ? Dtype::F32 : Dtype::F64)),
        values_(tensor_.mutable_data<T>()) {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      values_[i] = static_cast<T>(static_cast<int>(i * 7919 % 2001) - 1000) / T(1000);
    }
  }
  operator std::span<T>() { return values_; }
  operator std::span<const T>() { return values_; }
  T* data() { return values_.data(); }

 private:
  Tensor tensor_;
  std::span<T> values_;
};

/// Everything one benchmark touches: rows x width, statistics per row or per column.
struct Arrays {
  Arrays(std::int64_t rows, std::int64_t width, std::int64_t statistics, std::int64_t room)
      : x(rows * width),
        dy(rows * width),
        y(rows * width),
        dx(rows * width),
        gamma(width),
        beta(width),
        dgamma(width),
        dbeta(width),
        stats(statistics),
        workspace(room) {}
  Buffer<float> x, dy, y, dx, gamma, beta, dgamma, dbeta, stats, workspace;
};

}  // namespace steady::bench
