#include <cmath>
#include <steadygrad/core/kernels/scratch.hpp>
#include <steadygrad/core/kernels/softmax_rows.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/softmax_simd.cpp"
#include <hwy/foreach_target.h>

#include <steadygrad/core/kernels/rows-inl.hpp>
#include <steadygrad/core/kernels/softmax-inl.hpp>
#include <steadygrad/core/kernels/stream-inl.hpp>

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

// room = exp(x - shift), returns its sum.
HWY_INLINE double exponentials(const float* x, std::int64_t width, float shift, float* room) {
  return row_sum(width, [&](std::int64_t i, auto part) {
    const Float e = keep<float>(math::exp_flushed(hn::Sub(load(x + i, part), fill(shift))), part);
    store<float>(e, room + i, part);
    return e;
  });
}

// y = room * factor; returns the largest element of `next`: reads and writes of memory overlap.
template <bool kStream>
HWY_INLINE float scaled(const float* room, std::int64_t width, float factor, float* y,
                        const float* next) {
  Largest largest;
  for_vectors<float>(width, [&](std::int64_t i, auto part, int k) {
    put<kStream, float>(hn::Mul(load(room + i, part), fill(factor)), y + i, part);
    largest.add(k, load(next + i, part), part);
  });
  return largest.total();
}

// Rows in blocks whose chains of largest, sum and quotient run side by side; room holds a block.
template <bool kStream>
HWY_FLATTEN void softmax_blocks(const float* x, std::int64_t rows, std::int64_t width, float* y,
                                float* room) {
  const std::int64_t together = rows_together<float>(width);
  float shift[MostTogether] = {};
  float factor[MostTogether] = {};
  for (std::int64_t r = 0; r < std::min(together, rows); ++r) {
    shift[r] = row_max(x + r * width, width);
  }
  for (std::int64_t first = 0; first < rows; first += together) {
    const std::int64_t n = std::min(together, rows - first);
    for (std::int64_t k = 0; k < n; ++k) {
      const double total = exponentials(x + (first + k) * width, width, shift[k], room + k * width);
      factor[k] = static_cast<float>(1 / total);
    }
    for (std::int64_t k = 0; k < n; ++k) {
      const std::int64_t r = first + k;
      const std::int64_t next = r + together < rows ? r + together : r;
      shift[k] =
          scaled<kStream>(room + k * width, width, factor[k], y + r * width, x + next * width);
    }
  }
  end_stream<kStream>();
}

void softmax(const float* x, std::int64_t rows, std::int64_t width, float* y, float* room,
             bool stream) {
  stream ? softmax_blocks<true>(x, rows, width, y, room)
         : softmax_blocks<false>(x, rows, width, y, room);
}

std::int64_t softmax_room(std::int64_t rows, std::int64_t width) {
  return std::min(rows, rows_together<float>(width)) * width;
}

HWY_INLINE double dot(const float* dy, const float* y, std::int64_t width) {
  return row_sum(width, [&](std::int64_t i, auto part) {
    return hn::Mul(load(dy + i, part), load(y + i, part));
  });
}

// dx of one row and the sum dy * y of the next, which begins `ahead` elements further.
template <bool kStream>
HWY_INLINE double backward_row(const float* dy, const float* y, std::int64_t width, double total,
                               float* dx, std::int64_t ahead) {
  const Float sum = fill(static_cast<float>(total));
  return row_sum(width, [&](std::int64_t i, auto part) {
    const Float d = hn::Mul(load(y + i, part), hn::Sub(load(dy + i, part), sum));
    const Float next = hn::Mul(load(dy + ahead + i, part), load(y + ahead + i, part));
    put<kStream, float>(d, dx + i, part);
    return next;
  });
}

template <bool kStream>
HWY_FLATTEN void backward_blocks(const float* dy, const float* y, std::int64_t rows,
                                 std::int64_t width, float* dx) {
  const std::int64_t together = rows_together<float>(2 * width);
  double total[MostTogether] = {};
  for (std::int64_t r = 0; r < std::min(together, rows); ++r) {
    total[r] = dot(dy + r * width, y + r * width, width);
  }
  for (std::int64_t first = 0; first < rows; first += together) {
    for (std::int64_t r = first; r < std::min(first + together, rows); ++r) {
      const std::int64_t ahead = r + together < rows ? together * width : 0;
      double& mine = total[r - first];
      mine =
          backward_row<kStream>(dy + r * width, y + r * width, width, mine, dx + r * width, ahead);
    }
  }
  end_stream<kStream>();
}

void softmax_backward(const float* dy, const float* y, std::int64_t rows, std::int64_t width,
                      float* dx, bool stream) {
  stream ? backward_blocks<true>(dy, y, rows, width, dx)
         : backward_blocks<false>(dy, y, rows, width, dx);
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
HWY_EXPORT(softmax_room);
HWY_EXPORT(softmax_backward);
HWY_EXPORT(log_softmax);
HWY_EXPORT(log_softmax_backward);
HWY_EXPORT(log_sum_exp);
HWY_EXPORT(exp_scaled);
}  // namespace

namespace kernels {

void softmax_rows(const float* x, std::int64_t rows, std::int64_t width, float* y, bool stream) {
  struct Exponentials;
  const std::int64_t room = HWY_DYNAMIC_DISPATCH(softmax_room)(rows, width);
  HWY_DYNAMIC_DISPATCH(softmax)
  (x, rows, width, y, thread_scratch<Exponentials>().take<float>(room).data(), stream);
}
void softmax_backward_rows(const float* dy, const float* y, std::int64_t rows, std::int64_t width,
                           float* dx, bool stream) {
  HWY_DYNAMIC_DISPATCH(softmax_backward)(dy, y, rows, width, dx, stream);
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
