#include <steadygrad/core/io/half.hpp>

#include <bit>
#include <cmath>

namespace steady {
namespace {

constexpr std::uint32_t SignBit = 0x80000000U;
constexpr std::uint32_t Infinity = 0x7F800000U;
// Binary16 counts exponents from 15, float from 127.
constexpr std::uint32_t Rebias = (127U - 15U) << 23;

/// The upper 32 - `drop` bits, rounded to nearest, ties to even. A carry runs into the exponent,
/// which is right, up to infinity.
constexpr std::uint32_t round_off(std::uint32_t bits, unsigned drop) {
  const std::uint32_t below_half = (1U << (drop - 1)) - 1U;
  return (bits + below_half + (bits >> drop & 1U)) >> drop;
}

}  // namespace

float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t magnitude = bits & 0x7FFFU;
  // Subnormal: the fraction counts in units of 2^-24.
  const auto small = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24F);
  const std::uint32_t normal = (magnitude << 13) + Rebias;
  const std::uint32_t special = (magnitude << 13) | Infinity;
  const std::uint32_t result = magnitude < 0x0400U ? small : magnitude < 0x7C00U ? normal : special;
  return std::bit_cast<float>(sign | result);
}

std::uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits & SignBit) >> 16;
  const std::uint32_t magnitude = bits & ~SignBit;
  std::uint32_t result = 0;
  if (magnitude > Infinity) {
    result = 0x7E00U | (magnitude >> 13 & 0x1FFU);  // quiet, with the payload that fits
  } else if (magnitude >= 0x47800000U) {            // 65536
    result = 0x7C00U;
  } else if (magnitude >= 0x38800000U) {  // 2^-14, the smallest normal number
    result = round_off(magnitude - Rebias, 13);
  } else {
    result = static_cast<std::uint32_t>(std::nearbyint(std::fabs(value) * 0x1p24F));
  }
  return static_cast<std::uint16_t>(sign | result);
}

float bfloat16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool nan = (bits & ~SignBit) > Infinity;
  return static_cast<std::uint16_t>(nan ? bits >> 16 | 0x40U : round_off(bits, 16));
}

float narrow_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const auto back = static_cast<double>(nearest);
  if (back == value || std::isnan(value)) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(back) > std::fabs(value)) --bits;
  return std::bit_cast<float>(bits | 1U);
}

}  // namespace steady
