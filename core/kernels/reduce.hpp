#pragma once

#include <cstdint>
#include <span>
#include <steadygrad/core/kernels/broadcast.hpp>

namespace steady::kernels {

/// Bit i set: axis i is reduced.
using AxisMask = std::uint32_t;

/// Every axis of a tensor of that rank.
[[nodiscard]] constexpr AxisMask all_axes(int rank) { return (AxisMask{1} << rank) - 1; }

/// Elements reduced into one result: the product of the masked extents.
[[nodiscard]] std::int64_t reduced_count(Extents extents, AxisMask mask);

/// y = sum of x over the masked axes, each result multiplied by `factor` (1 / count gives the
/// mean). x: row-major of `extents`; y: its unmasked axes. T: float or double. Blocks are summed in
/// T and the blocks in double, in an order that depends on the shape alone. An empty sum is 0.
template <class T>
void sum(std::span<const T> x, Extents extents, AxisMask mask, std::span<T> y, double factor = 1);

/// The reverse of broadcasting: x of extents `from` summed into y of extents `to`, where `to`
/// broadcasts to `from`. Throws ShapeError when it does not.
template <class T>
void sum_to(std::span<const T> x, Extents from, std::span<T> y, Extents to);

/// y = largest x over the masked axes; NaN when one of them is NaN. Throws Error when the masked
/// axes hold no element.
template <class T>
void amax(std::span<const T> x, Extents extents, AxisMask mask, std::span<T> y);

/// w = d amax / d x, shape of x: 1 / (number of ties) where x equals its maximum y, else 0. A NaN
/// maximum goes to the NaN elements.
template <class T>
void amax_weights(std::span<const T> x, Extents extents, AxisMask mask, std::span<const T> y,
                  std::span<T> w);

/// index[o, i] = the first r with the largest x[o, r, i] for x: [outer, count, inner]; the first
/// NaN when there is one. Throws Error for count < 1.
template <class T>
void argmax(std::span<const T> x, std::int64_t outer, std::int64_t count, std::int64_t inner,
            std::span<std::int64_t> index);

/// y = sum((x - mean)^2) / (n - correction) over the masked axes, n of them, from the mean of a
/// first pass in double. correction 0: biased; 1: unbiased. NaN where n <= correction.
template <class T>
void variance(std::span<const T> x, Extents extents, AxisMask mask, int correction, std::span<T> y);

/// Sum of squares in double; infinite or NaN when an element is.
template <class T>
[[nodiscard]] double sum_squares(std::span<const T> x);

/// Largest |x|; NaN when an element is NaN, 0 for none.
template <class T>
[[nodiscard]] double max_abs(std::span<const T> x);

}  // namespace steady::kernels
