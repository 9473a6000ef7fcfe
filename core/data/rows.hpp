#pragma once

#include <cstdint>
#include <span>
#include <steadygrad/core/tensor.hpp>

namespace steady {

/// The rows of a data tensor in a given order, as a new tensor that no tape knows.
/// source: [N, ...], any dtype. Result: [rows.size(), ...]. Throws ShapeError for an index outside
/// [0, N).
[[nodiscard]] Tensor copy_rows(const Tensor& source, std::span<const std::int64_t> rows);

}  // namespace steady
