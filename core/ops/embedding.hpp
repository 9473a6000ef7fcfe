#pragma once

#include <cstdint>
#include <steadygrad/core/tensor.hpp>

namespace steady {

/// Options of embedding.
struct EmbeddingOptions {
  /// The row with this number gets no gradient (its elements are read as they are); -1: none.
  std::int64_t padding_idx = -1;
};

/// y[i..., :] = table[ids[i...], :]. table: [rows, width], f32 or f64; ids: i64 or i32 of any
/// shape; y: ids.shape + [width]. Repeated ids add up in the gradient of the table, in the order of
/// the ids: the same bits for any number of threads. Differentiable to any order. Throws Error
/// naming position and value of an id outside 0 .. rows-1 and the number of rows, and for a
/// padding_idx that is neither -1 nor a row; ShapeError for ranks and dtypes.
[[nodiscard]] Tensor embedding(const Tensor& table, const Tensor& ids,
                               const EmbeddingOptions& options = {});

}  // namespace steady
