#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <string>

// What a norm computes in bf16 or fp16, number for number: for looking at what a format, the
// width of an accumulator or the order of a cast costs. Slow, and apart from the kernels that run.

namespace steady {

/// bf16: 8 bits of precision and the range of float. fp16: 11 bits, largest number 65504. Both with
/// subnormal numbers.
enum class LowFormat : std::uint8_t { Bf16, Fp16 };

/// The nearest number of the format, ties to even; infinity where the format overflows. Exact for
/// every double, without a rounding to float between. NaN and infinity stay what they are.
[[nodiscard]] double round_to(LowFormat format, double value);

/// How low-precision code computes a norm. Input, weight, bias and output are always rounded to
/// the format; everything between is rounded to the accumulator's after every single operation.
struct SimulatedPrecision {
  LowFormat format = LowFormat::Bf16;
  /// accumulate=same: sums, statistics and the normalized value in the format itself; otherwise in
  /// float.
  bool narrow = false;
  /// cast=before: the normalized value is rounded to the format before the weight multiplies it,
  /// and so are product and sum (Llama, T5); otherwise weight and bias are applied in the
  /// accumulator's format and the result alone is rounded (Gemma, PyTorch's own layer_norm). A gain
  /// of 1 + weight is added in the format in which it is applied.
  bool cast_before = false;

  friend bool operator==(const SimulatedPrecision&, const SimulatedPrecision&) = default;
};

/// "simulate=bf16, accumulate=f32, cast=after".
[[nodiscard]] std::string to_string(const SimulatedPrecision& precision);

namespace detail {

/// What `simulate`, `accumulate` and `cast` among the options of a norm say; none for
/// simulate=none. Throws Error when the other two are set without it.
[[nodiscard]] std::optional<SimulatedPrecision> simulated_precision(const NormOptions& options);

/// Sets of `count` elements of a buffer that share statistics: element i of set s is number
/// s * step + i * stride of all, and has gain and shift number (that) % affine.
struct SimulatedSets {
  std::int64_t sets, count, step, stride, affine;
};

/// The norm of each set:
///   y = (x - mean) / sqrt(variance + eps) * gain + shift
/// centred: the mean is subtracted; otherwise mean 0 and the second moment for the variance
/// (biased, in two passes; sums in order, one accumulator). unit_offset: the gain is 1 + gamma.
/// means and variances, one per set, stand in place of those of x unless empty. gamma and beta may
/// be empty. x, y: all elements, T is float or double; y overlaps nothing.
struct SimulatedRule {
  bool centred = false;
  bool unit_offset = false;
  double eps = 0;
};
template <class T>
void simulate_norm(const SimulatedSets& sets, const SimulatedRule& rule,
                   const SimulatedPrecision& precision, std::span<const T> x,
                   std::span<const T> gamma, std::span<const T> beta, std::span<const T> means,
                   std::span<const T> variances, std::span<T> y);

}  // namespace detail
}  // namespace steady
