#pragma once

#include <cstdint>

/// The two 16-bit floating types of model files, as bits.
namespace steady {

/// IEEE binary16 ("F16"): 1 sign, 5 exponent, 10 fraction bits. Exact; a NaN stays a NaN.
[[nodiscard]] float half_to_float(std::uint16_t bits);
/// Rounded to nearest, ties to even. From 65520 on the result is infinite; a NaN stays a NaN.
[[nodiscard]] std::uint16_t float_to_half(float value);

/// bfloat16 ("BF16"), the upper half of a float: 1 sign, 8 exponent, 7 fraction bits. Exact.
[[nodiscard]] float bfloat16_to_float(std::uint16_t bits);
/// Rounded to nearest, ties to even; overflow is infinite; a NaN stays a NaN.
[[nodiscard]] std::uint16_t float_to_bfloat16(float value);

/// `value` as a float such that rounding it once more, to one of the types above, gives what
/// rounding `value` itself would: towards zero, with the last bit set when something was lost
/// (rounding to odd).
[[nodiscard]] float narrow_to_odd(double value);

}  // namespace steady
