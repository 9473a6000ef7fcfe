#pragma once

#include <array>
#include <cstdint>
#include <steadygrad/core/tensor.hpp>

namespace steady {

/// What a tensor's elements look like. Mean, spread, RMS and maximum are of the finite elements, so
/// that one NaN does not hide the rest; they are NaN when there is none.
struct TensorStats {
  /// Bins of the histogram of |x|, one per power of two: bin i counts
  /// 2^(LowestExponent + i) <= |x| < 2^(LowestExponent + i + 1). The first bin also takes what is
  /// smaller and not zero, the last one what is larger and finite. Of a tensor with more than
  /// 65536 elements, about a quarter is counted, always the same one, spread over the tensor in
  /// blocks of 64: bins are to be compared with their sum.
  static constexpr int Bins = 96;
  static constexpr int LowestExponent = -64;

  std::int64_t count = 0;  ///< elements
  double mean = 0;
  double std = 0;         ///< biased: the squares are divided by the number of elements
  double rms = 0;         ///< sqrt(mean(x^2))
  double max_abs = 0;     ///< max |x|
  double zeros = 0;       ///< fraction of exact zeros, in [0, 1]
  double non_finite = 0;  ///< fraction of NaN and infinities, in [0, 1]
  std::array<std::int64_t, Bins> histogram{};  ///< of what is neither zero nor non-finite
};

/// One pass over x (f32 or f64), in double; the same bits for any number of threads. Throws
/// ShapeError for integers.
[[nodiscard]] TensorStats tensor_stats(const Tensor& x);

/// The same of a - b, two tensors of one shape and dtype (else ShapeError).
[[nodiscard]] TensorStats difference_stats(const Tensor& a, const Tensor& b);

/// <a, b> / (|a| |b|) in [-1, 1]; NaN when a norm is zero or not finite. a, b: of one shape and
/// dtype, else ShapeError.
[[nodiscard]] double cosine(const Tensor& a, const Tensor& b);

}  // namespace steady
