#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <steadygrad/core/tensor.hpp>
#include <vector>

namespace steady {

/// The reverse of concat: consecutive parts of `extents` along the last axis, each in memory of its
/// own. x: [..., sum of extents], every dtype; part i: [..., extents[i]]. Differentiable to any
/// order; the gradient is one concatenation, with zeros for a part that nothing depends on.
/// Throws ShapeError when an extent is negative or they do not add up to the axis.
[[nodiscard]] std::vector<Tensor> split(const Tensor& x, std::span<const std::int64_t> extents);
[[nodiscard]] std::vector<Tensor> split(const Tensor& x,
                                        std::initializer_list<std::int64_t> extents);

}  // namespace steady
