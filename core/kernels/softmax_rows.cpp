#include <algorithm>
#include <cmath>
#include <steadygrad/core/kernels/softmax_rows.hpp>

namespace steady::kernels {
namespace {

double exp_sum(const double* x, std::int64_t width, double shift) {
  double total = 0;
  for (std::int64_t j = 0; j < width; ++j) total += std::exp(x[j] - shift);
  return total;
}

/// The largest element that is not NaN, for the elements before the first NaN at least: a row with
/// NaN is NaN through its sum.
double largest(const double* x, std::int64_t width) { return *std::max_element(x, x + width); }

}  // namespace

void softmax_rows(const double* x, std::int64_t rows, std::int64_t width, double* y, bool) {
  for (std::int64_t r = 0; r < rows; ++r, x += width, y += width) {
    const double shift = largest(x, width);
    double total = 0;
    for (std::int64_t j = 0; j < width; ++j) total += y[j] = std::exp(x[j] - shift);
    for (std::int64_t j = 0; j < width; ++j) y[j] /= total;
  }
}

void softmax_backward_rows(const double* dy, const double* y, std::int64_t rows, std::int64_t width,
                           double* dx, bool) {
  for (std::int64_t r = 0; r < rows; ++r, dy += width, y += width, dx += width) {
    double dot = 0;
    for (std::int64_t j = 0; j < width; ++j) dot += dy[j] * y[j];
    for (std::int64_t j = 0; j < width; ++j) dx[j] = y[j] * (dy[j] - dot);
  }
}

void log_softmax_rows(const double* x, std::int64_t rows, std::int64_t width, double* y) {
  for (std::int64_t r = 0; r < rows; ++r, x += width, y += width) {
    const double shift = largest(x, width);
    const double log_total = std::log(exp_sum(x, width, shift));
    for (std::int64_t j = 0; j < width; ++j) y[j] = (x[j] - shift) - log_total;
  }
}

void log_softmax_backward_rows(const double* dy, const double* y, std::int64_t rows,
                               std::int64_t width, double* dx) {
  for (std::int64_t r = 0; r < rows; ++r, dy += width, y += width, dx += width) {
    double total = 0;
    for (std::int64_t j = 0; j < width; ++j) total += dy[j];
    for (std::int64_t j = 0; j < width; ++j) dx[j] = dy[j] - std::exp(y[j]) * total;
  }
}

void log_sum_exp_rows(const double* x, std::int64_t rows, std::int64_t width, double* lse) {
  for (std::int64_t r = 0; r < rows; ++r, x += width) {
    const double shift = largest(x, width);
    lse[r] = shift + std::log(exp_sum(x, width, shift));
  }
}

void exp_row(const double* x, std::int64_t width, double lse, double factor, double* y) {
  for (std::int64_t j = 0; j < width; ++j) y[j] = factor * std::exp(x[j] - lse);
}

}  // namespace steady::kernels
