#pragma once

#include <cstdint>
#include <functional>
#include <steadygrad/core/random.hpp>
#include <steadygrad/core/tensor.hpp>

namespace steady {

/// Fills a tensor with its initial values; reads `random` for nothing but that.
using Init = std::function<void(Tensor& value, Random& random)>;

/// Inputs and outputs of one unit: weight [out, in, ...] has fan_in = in * rest and fan_out =
/// out * rest, rest being the kernel's elements. Throws ShapeError for a rank below 2.
struct Fans {
  double in;
  double out;
};
[[nodiscard]] Fans fans_of(const Shape& shape);

/// Every element `value`.
[[nodiscard]] Init constant_init(double value);
/// Uniform on [low, high). Throws Error unless low <= high.
[[nodiscard]] Init uniform_init(double low, double high);
/// Normal. Throws Error unless mean is finite and stddev >= 0.
[[nodiscard]] Init normal_init(double mean, double stddev);
/// Normal, redrawn outside [low, high] (absolute bounds). Throws Error unless stddev > 0 and at
/// least one draw in 1000 is inside.
[[nodiscard]] Init truncated_normal_init(double mean, double stddev, double low, double high);
/// Uniform on +-sqrt(3) * gain / sqrt(fan_in)                         [He et al. 2015]
/// gain: sqrt(2) for relu, 1 for linear, sqrt(2 / (1 + a^2)) for leaky relu of slope a.
[[nodiscard]] Init kaiming_uniform_init(double gain);
/// Normal of deviation gain / sqrt(fan_in)                            [He et al. 2015]
[[nodiscard]] Init kaiming_normal_init(double gain);
/// Uniform on +-sqrt(6 / (fan_in + fan_out)) * gain                   [Glorot & Bengio 2010]
[[nodiscard]] Init xavier_uniform_init(double gain = 1.0);
/// Normal of deviation sqrt(2 / (fan_in + fan_out)) * gain            [Glorot & Bengio 2010]
[[nodiscard]] Init xavier_normal_init(double gain = 1.0);

}  // namespace steady
