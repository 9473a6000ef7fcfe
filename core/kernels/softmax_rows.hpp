#pragma once

#include <cmath>
#include <cstdint>

/// What softmax and cross entropy do with one row of n elements. exp is flushed to 0 where it
/// would be denormal only as far as the type's own exp does.
namespace steady::kernels {

/// Largest element; anything when one is NaN (the sums below are NaN then).
template <class T>
T row_max(const T* x, std::int64_t n) {
  T best = x[0];
  for (std::int64_t i = 1; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

/// y = exp(x - shift); returns the sum. y may be x.
template <class T>
double row_exp(const T* x, std::int64_t n, T shift, T* y) {
  double total = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = std::exp(x[i] - shift);
    total += static_cast<double>(y[i]);
  }
  return total;
}

/// Sum of exp(x - shift).
template <class T>
double row_exp_sum(const T* x, std::int64_t n, T shift) {
  double total = 0;
  for (std::int64_t i = 0; i < n; ++i) total += static_cast<double>(std::exp(x[i] - shift));
  return total;
}

template <class T>
void row_scale(T* y, std::int64_t n, T factor) {
  for (std::int64_t i = 0; i < n; ++i) y[i] *= factor;
}

template <class T>
double row_sum(const T* x, std::int64_t n) {
  double total = 0;
  for (std::int64_t i = 0; i < n; ++i) total += static_cast<double>(x[i]);
  return total;
}

template <class T>
double row_dot(const T* x, const T* y, std::int64_t n) {
  double total = 0;
  for (std::int64_t i = 0; i < n; ++i)
    total += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return total;
}

/// dx = y (dy - dot)
template <class T>
void row_softmax_backward(const T* dy, const T* y, std::int64_t n, T dot, T* dx) {
  for (std::int64_t i = 0; i < n; ++i) dx[i] = y[i] * (dy[i] - dot);
}

/// dx = dy - exp(y) total
template <class T>
void row_log_softmax_backward(const T* dy, const T* y, std::int64_t n, T total, T* dx) {
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] - std::exp(y[i]) * total;
}

/// p = exp(x - lse), lse in double: (x - high) - low with lse = high + low in T.
template <class T>
void row_probabilities(const T* x, std::int64_t n, double lse, T* p) {
  const T high = static_cast<T>(lse);
  const T low = static_cast<T>(lse - static_cast<double>(high));
  for (std::int64_t i = 0; i < n; ++i) p[i] = std::exp((x[i] - high) - low);
}

}  // namespace steady::kernels
