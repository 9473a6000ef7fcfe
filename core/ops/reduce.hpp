#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <steadygrad/core/tensor.hpp>

/// Reductions and their reverse. All take f32 or f64, have a first and a second derivative, throw
/// ShapeError otherwise, and give the same bits for any number of threads.
namespace steady {

/// The axes an operation reduces: one int, {0, 2} or a span. Negative ones count from the end.
class Axes {
 public:
  Axes(int axis) : Axes(std::span<const int>(&axis, 1)) {}
  Axes(std::initializer_list<int> axes) : Axes(std::span(axes.begin(), axes.size())) {}
  explicit Axes(std::span<const int> axes);

  /// Bit i set: axis i of `shape` is named. Throws ShapeError naming `op` for an axis out of range,
  /// one that is named twice, and when none is named.
  [[nodiscard]] std::uint32_t mask(const Shape& shape, const char* op) const;

 private:
  std::array<int, Shape::MaxRank> axes_{};
  int count_ = 0;
};

/// y = sum of x over the axes; without axes over all of them, to rank 0. With `keepdim` a reduced
/// axis stays with extent 1. The sum of nothing is 0.
[[nodiscard]] Tensor sum(const Tensor& x);
[[nodiscard]] Tensor sum(const Tensor& x, const Axes& axes, bool keepdim = false);

/// y = sum of x over the axes / number of elements summed. Throws ShapeError when that is 0.
[[nodiscard]] Tensor mean(const Tensor& x);
[[nodiscard]] Tensor mean(const Tensor& x, const Axes& axes, bool keepdim = false);

struct VarOptions {
  bool unbiased = true;  ///< divide by n - 1 instead of n
  bool keepdim = false;  ///< keep a reduced axis with extent 1
};
/// y = sum((x - mean)^2) / (n - 1) over the n elements of the axes; n instead of n - 1 when not
/// `unbiased`; without axes over all of them, unbiased. Two passes, the mean in double. Throws
/// ShapeError when the divisor is not positive.
[[nodiscard]] Tensor var(const Tensor& x);
[[nodiscard]] Tensor var(const Tensor& x, const Axes& axes, const VarOptions& options = {});

/// y = largest x over the axes, NaN when one is NaN. Elements that tie for it share its gradient
/// equally. Throws ShapeError when there is no element.
[[nodiscard]] Tensor max(const Tensor& x);
[[nodiscard]] Tensor max(const Tensor& x, const Axes& axes, bool keepdim = false);

/// Index of the first largest element along `axis` (the first NaN when there is one): i64, the
/// shape of x without that axis. A constant: indices have no gradient. Throws ShapeError when the
/// axis has no element.
[[nodiscard]] Tensor argmax(const Tensor& x, int axis = -1);

/// How many rows have their largest logit at the target, for sums over batches of any size.
/// logits: [..., C], f32 or f64; target: [...], i64. Throws ShapeError when shapes do not fit.
[[nodiscard]] std::int64_t count_correct(const Tensor& logits, const Tensor& target);

/// The reverse of broadcasting: x summed into `shape`, which must broadcast to the shape of x (else
/// ShapeError). x itself when it has that shape.
[[nodiscard]] Tensor sum_to(const Tensor& x, const Shape& shape);
/// x repeated to `shape` as NumPy broadcasts it; throws ShapeError when it does not. x itself when
/// it has that shape.
[[nodiscard]] Tensor broadcast_to(const Tensor& x, const Shape& shape);

}  // namespace steady
