#pragma once

#include <cstdint>
#include <steadygrad/core/data/dataset.hpp>

namespace steady {

/// A stand-in for MNIST that needs no download: the ten digits drawn as strokes, 28 x 28.
struct GlyphOptions {
  std::int64_t train = 10000;  // samples, at least 1
  std::int64_t test = 2000;    // samples, at least 1
  std::uint64_t seed = 1;
  double mean = 0.1307;       // x = (pixel - mean) / deviation for pixels in [0, 1],
  double deviation = 0.3081;  // as MnistOptions has it
};

/// Draws the set. Each image takes the polyline of its digit, moves its joints, distorts it by a
/// random affine map (scale, rotation, shear, shift), draws it anti-aliased with a random width and
/// strength, and adds noise. x: f32 [N, 28, 28, 1]; y: i64 [N], sample i has label i mod 10.
/// Image i of a part is a function of (seed, part, i) alone: the same for any thread count and any
/// number of samples. Throws Error for a part without samples.
[[nodiscard]] TrainTest make_glyphs(const GlyphOptions& options = {});

}  // namespace steady
