#include <cmath>
#include <steadygrad/core/kernels/softmax_rows.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/softmax_simd.cpp"
#include <hwy/foreach_target.h>

#include <steadygrad/core/kernels/softmax-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

using math::Float;

HWY_INLINE double exp_sum(const float* x, std::int64_t width, float shift) {
  return row_sum(width, [&](std::int64_t i, auto part) {
    return keep<float>(math::exp_flushed(hn::Sub(load(x + i, part), fill(shift))), part);
  });
}

HWY_FLATTEN void softmax(const float* x, std::int64_t rows, std::int64_t width, float* y) {
  for (std::int64_t r = 0; r < rows; ++r, x += width, y += width) {
    const float shift = row_max(x, width);
    const double total = row_sum(width, [&](std::int64_t i, auto part) {
      const Float e = keep<float>(math::exp_flushed(hn::Sub(load(x + i, part), fill(shift))), part);
      store<float>(e, y + i, part);
      return e;
    });
    const Float factor = fill(static_cast<float>(1 / total));
    for_vectors<float>(width, [&](std::int64_t i, auto part, int) {
      store<float>(hn::Mul(load(y + i, part), factor), y + i, part);
    });
  }
}

HWY_FLATTEN void softmax_backward(const float* dy, const float* y, std::int64_t rows,
                                  std::int64_t width, float* dx) {
  for (std::int64_t r = 0; r < rows; ++r, dy += width, y += width, dx += width) {
    const double total = row_sum(width, [&](std::int64_t i, auto part) {
      return hn::Mul(load(dy + i, part), load(y + i, part));
    });
    const Float dot = fill(static_cast<float>(total));
    for_vectors<float>(width, [&](std::int64_t i, auto part, int) {
      store<float>(hn::Mul(load(y + i, part), hn::Sub(load(dy + i, part), dot)), dx + i, part);
    });
  }
}

HWY_FLATTEN void log_softmax(const float* x, std::int64_t rows, std::int64_t width, float* y) {
  for (std::int64_t r = 0; r < rows; ++r, x += width, y += width) {
    const float shift = row_max(x, width);
    const Float log_total = fill(static_cast<float>(std::log(exp_sum(x, width, shift))));
    for_vectors<float>(width, [&](std::int64_t i, auto part, int) {
      const Float shifted = hn::Sub(load(x + i, part), fill(shift));
      store<float>(hn::Sub(shifted, log_total), y + i, part);
    });
  }
}

HWY_FLATTEN void log_softmax_backward(const float* dy, const float* y, std::int64_t rows,
                                      std::int64_t width, float* dx) {
  for (std::int64_t r = 0; r < rows; ++r, dy += width, y += width, dx += width) {
    const double sum =
        row_sum(width, [&](std::int64_t i, auto part) { return load(dy + i, part); });
    const Float total = fill(static_cast<float>(sum));
    for_vectors<float>(width, [&](std::int64_t i, auto part, int) {
      const Float p = math::exp_flushed(load(y + i, part));
      store<float>(fnma(p, total, load(dy + i, part)), dx + i, part);
    });
  }
}

HWY_FLATTEN void log_sum_exp(const float* x, std::int64_t rows, std::int64_t width, double* lse) {
  for (std::int64_t r = 0; r < rows; ++r, x += width) {
    const float shift = row_max(x, width);
    lse[r] = static_cast<double>(shift) + std::log(exp_sum(x, width, shift));
  }
}

/// lse = high + low in float: x - high is exact near lse.
HWY_FLATTEN void exp_scaled(const float* x, std::int64_t width, double lse, float factor,
                            float* y) {
  const float high = static_cast<float>(lse);
  const float low = static_cast<float>(lse - static_cast<double>(high));
  for_vectors<float>(width, [&](std::int64_t i, auto part, int) {
    const Float shifted = hn::Sub(hn::Sub(load(x + i, part), fill(high)), fill(low));
    store<float>(hn::Mul(math::exp_flushed(shifted), fill(factor)), y + i, part);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace steady {
namespace {
HWY_EXPORT(softmax);
HWY_EXPORT(softmax_backward);
HWY_EXPORT(log_softmax);
HWY_EXPORT(log_softmax_backward);
HWY_EXPORT(log_sum_exp);
HWY_EXPORT(exp_scaled);
}  // namespace

namespace kernels {

void softmax_rows(const float* x, std::int64_t rows, std::int64_t width, float* y) {
  HWY_DYNAMIC_DISPATCH(softmax)(x, rows, width, y);
}
void softmax_backward_rows(const float* dy, const float* y, std::int64_t rows, std::int64_t width,
                           float* dx) {
  HWY_DYNAMIC_DISPATCH(softmax_backward)(dy, y, rows, width, dx);
}
void log_softmax_rows(const float* x, std::int64_t rows, std::int64_t width, float* y) {
  HWY_DYNAMIC_DISPATCH(log_softmax)(x, rows, width, y);
}
void log_softmax_backward_rows(const float* dy, const float* y, std::int64_t rows,
                               std::int64_t width, float* dx) {
  HWY_DYNAMIC_DISPATCH(log_softmax_backward)(dy, y, rows, width, dx);
}
void log_sum_exp_rows(const float* x, std::int64_t rows, std::int64_t width, double* lse) {
  HWY_DYNAMIC_DISPATCH(log_sum_exp)(x, rows, width, lse);
}
void exp_row(const float* x, std::int64_t width, double lse, float factor, float* y) {
  HWY_DYNAMIC_DISPATCH(exp_scaled)(x, width, lse, factor, y);
}

}  // namespace kernels
}  // namespace steady
#endif
