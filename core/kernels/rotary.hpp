#pragma once

#include <cstdint>
#include <span>

namespace steady::kernels {

/// Rotary embedding of x: [batch, tokens, heads, width]. In each head, pair i of the first `dims`
/// features of token t turns by the angle (offset + t) * theta^(-2i / dims).
struct Rotary {
  std::int64_t batch = 0;
  std::int64_t tokens = 0;
  std::int64_t heads = 0;
  std::int64_t width = 0;
  std::int64_t dims = 0;    ///< even, at most width; the features after them are copied
  std::int64_t offset = 0;  ///< position of token 0
  double theta = 10000;
  bool interleaved = false;  ///< pair i is (2i, 2i + 1), else (i, i + dims / 2)
  bool inverse = false;      ///< turns back
};

/// y = x rotated. Angles, sines and cosines are computed in double and rounded once.
template <class T>
void rotary(const Rotary& r, std::span<const T> x, std::span<T> y);

}  // namespace steady::kernels
