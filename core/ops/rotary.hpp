#pragma once

#include <cstdint>
#include <steadygrad/core/tensor.hpp>

namespace steady {

/// Which features make a pair. The two are permutations of each other: weights trained with one are
/// wrong with the other.
enum class RotaryStyle : std::uint8_t {
  HalfSplit,    ///< (i, i + dims / 2): Llama as in Hugging Face, MiniMind, GPT-NeoX
  Interleaved,  ///< (2i, 2i + 1): the paper, Llama as published, GPT-J
};

/// Options of rotary.
struct RotaryOptions {
  double theta = 10000;  ///< base of the frequencies, > 0
  RotaryStyle style = RotaryStyle::HalfSplit;
  std::int64_t offset = 0;  ///< position of the first token, >= 0
  std::int64_t dims = 0;    ///< the first `dims` features of a head turn, even; 0: all
};

/// Rotary position embedding                                              [Su et al. 2021, eq. 34]
///   (y_a, y_b) = (x_a cos p - x_b sin p, x_b cos p + x_a sin p),   p = (offset + t)
///   theta^(-2i/dims)
/// for pair i = (a, b) of every head at token t. x, y: [B, T, H, d], f32 or f64. Sines and cosines
/// come from float64 angles. The gradient is the inverse rotation, to any order. Throws ShapeError
/// for other ranks and for dims that are odd or larger than d, Error for theta and offset out of
/// range.
[[nodiscard]] Tensor rotary(const Tensor& x, const RotaryOptions& options = {});

}  // namespace steady
