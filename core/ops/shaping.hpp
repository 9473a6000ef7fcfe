#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <steadygrad/core/tensor.hpp>

/// Operations that move elements and change none. All take every dtype, give f32 and f64 tensors a
/// gradient of any order, and throw ShapeError before anything is allocated. Negative axes count
/// from the end.
namespace steady {

/// The same elements in row-major order under another shape of equal size; shares the memory of x.
[[nodiscard]] Tensor reshape(const Tensor& x, const Shape& shape);
/// The axes from `first_axis` on as one; shares the memory of x. A scalar becomes [1].
[[nodiscard]] Tensor flatten(const Tensor& x, int first_axis = 0);

/// Exchanges two axes.
[[nodiscard]] Tensor transpose(const Tensor& x, int a, int b);
/// Axis k of the result is axis axes[k] of x; throws unless `axes` names each axis once.
[[nodiscard]] Tensor permute(const Tensor& x, std::span<const int> axes);
[[nodiscard]] Tensor permute(const Tensor& x, std::initializer_list<int> axes);

/// The parts one after the other along `axis`. They have one dtype and rank, and equal extents on
/// the other axes. One tensor may occur several times.
[[nodiscard]] Tensor concat(std::span<const Tensor> parts, int axis);
[[nodiscard]] Tensor concat(std::initializer_list<Tensor> parts, int axis);

/// Elements start, start + step, ... below stop of one axis. Negative start and stop count from the
/// end. Throws unless 0 <= start <= stop <= extent and step >= 1: nothing is clipped silently.
[[nodiscard]] Tensor slice(const Tensor& x, int axis, std::int64_t start, std::int64_t stop,
                           std::int64_t step = 1);

/// y[i..., :] = table[index[i...], :]. table: [rows, width], index: i64 of any shape;
/// y: index.shape + [width]. Repeated indices add up in the gradient of the table, in the order of
/// the index. Throws Error naming an index outside 0 .. rows-1.
[[nodiscard]] Tensor gather_rows(const Tensor& table, const Tensor& index);

/// The elements converted to `dtype`, floating values to integers towards zero. Between f32 and f64
/// the gradient is converted back; to or from integers there is none: backward refuses.
[[nodiscard]] Tensor cast(const Tensor& x, Dtype dtype);
/// The elements in new memory.
[[nodiscard]] Tensor copy(const Tensor& x);

}  // namespace steady
