#pragma once

#include <optional>
#include <span>
#include <steadygrad/core/dtype.hpp>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/norm/row_stats.hpp>
#include <string>

// What the norm operations share: spans of tensors that may be undefined, and the contract of their
// parameters.

namespace steady::detail {

/// The elements; empty for an undefined tensor.
template <FloatElement T>
[[nodiscard]] std::span<const T> elements(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : std::span<const T>();
}

/// The elements of a new tensor, to be written; empty for an undefined one.
template <FloatElement T>
[[nodiscard]] std::span<T> writable(Tensor& tensor, const char* writer) {
  return tensor.defined() ? tensor.mutable_data<T>(writer) : std::span<T>();
}

/// Throws ShapeError unless x is defined and of a floating dtype.
void check_norm_input(const char* op, const Tensor& x);
/// Throws ShapeError unless both are of one shape and one floating dtype: nothing is broadcast.
void check_summands(const char* op, const Tensor& left, const Tensor& right);
/// Throws ShapeError unless `parameter` is undefined, or of exactly the shape `expected` and x's
/// dtype: nothing is broadcast.
void check_norm_parameter(const char* op, const char* name, const Tensor& parameter,
                          const Shape& expected, const Tensor& x);
/// Rows over the trailing axes of x that `normalized_shape` names; throws ShapeError unless x ends
/// in it.
[[nodiscard]] RowShape trailing_rows(const char* op, const Tensor& x,
                                     const Shape& normalized_shape);
/// Throws ShapeError unless x is [..., features] of two axes or more; `op` names a layer.
void check_features(const char* op, const Tensor& x, std::int64_t features);
/// Throws Error unless eps is finite and >= 0.
void check_eps(const char* op, double eps);
/// Throws ShapeError for a normalized_shape without axes or with an extent below 1; `op` names a
/// layer.
void check_normalized_shape(const char* op, const Shape& normalized_shape);
/// Throws Error unless momentum, the weight of the new batch, lies in [0, 1]; nullopt is the
/// average of all batches.
void check_momentum(const char* op, std::optional<double> momentum);
/// How running statistics are kept, for descriptions: "new batch weighs momentum=0.1".
[[nodiscard]] std::string describe_running(bool tracked, std::optional<double> momentum);
/// A new tensor, or an undefined one where nobody needs it.
[[nodiscard]] Tensor empty_if(bool needed, const Shape& shape, Dtype dtype);

}  // namespace steady::detail
