#pragma once

#include <cstdint>

/// What softmax and cross entropy do with one chunk of rows, row-major [rows, width], width >= 1;
/// the functions of softmax.hpp cut the chunks. float runs on the best SIMD target, with exp below
/// -87.3 flushed to 0; double is the plain loop.
namespace steady::kernels {

/// `stream` (float): write past the caches, see stream.hpp.
void softmax_rows(const float* x, std::int64_t rows, std::int64_t width, float* y, bool stream);
void softmax_rows(const double* x, std::int64_t rows, std::int64_t width, double* y, bool stream);

void softmax_backward_rows(const float* dy, const float* y, std::int64_t rows, std::int64_t width,
                           float* dx, bool stream);
void softmax_backward_rows(const double* dy, const double* y, std::int64_t rows, std::int64_t width,
                           double* dx, bool stream);

void log_softmax_rows(const float* x, std::int64_t rows, std::int64_t width, float* y);
void log_softmax_rows(const double* x, std::int64_t rows, std::int64_t width, double* y);

void log_softmax_backward_rows(const float* dy, const float* y, std::int64_t rows,
                               std::int64_t width, float* dx);
void log_softmax_backward_rows(const double* dy, const double* y, std::int64_t rows,
                               std::int64_t width, double* dx);

/// lse[r] = log(sum(exp(x[r, :]))).
void log_sum_exp_rows(const float* x, std::int64_t rows, std::int64_t width, double* lse);
void log_sum_exp_rows(const double* x, std::int64_t rows, std::int64_t width, double* lse);

/// y[j] = factor * exp(x[j] - lse) for one row. y may be x.
void exp_row(const float* x, std::int64_t width, double lse, float factor, float* y);
void exp_row(const double* x, std::int64_t width, double lse, double factor, double* y);

}  // namespace steady::kernels
