#pragma once

#include <cstdint>
#include <span>

namespace steady::kernels {

/// All functions: row-major [rows, width] in and out, statistics per row, T float or double.
/// Width 0 or no rows do nothing. Bitwise the same for any number of threads.

/// y = exp(x - max) / sum(exp(x - max)). y may be x. A row that holds NaN or +inf, or nothing but
/// -inf, is NaN; -inf beside a finite value gives exactly 0.
template <class T>
void softmax(std::span<const T> x, std::int64_t rows, std::int64_t width, std::span<T> y);

/// dx = y * (dy - sum(dy * y)). dx may be dy or y.
template <class T>
void softmax_backward(std::span<const T> dy, std::span<const T> y, std::int64_t rows,
                      std::int64_t width, std::span<T> dx);

/// y = x - max - log(sum(exp(x - max))). y may be x.
template <class T>
void log_softmax(std::span<const T> x, std::int64_t rows, std::int64_t width, std::span<T> y);

/// dx = dy - exp(y) * sum(dy). dx may be dy or y.
template <class T>
void log_softmax_backward(std::span<const T> dy, std::span<const T> y, std::int64_t rows,
                          std::int64_t width, std::span<T> dx);

}  // namespace steady::kernels
