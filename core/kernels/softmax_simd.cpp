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

/// What of three rows is done in one loop.
struct Turn {
  std::int64_t width;
  const float* next;  // of which the largest element is wanted
  const float* x;
  float shift;
  float* room;   // of x, holds the exponentials of the row that becomes y
  float factor;  // of y
  float* y;
};

/// Of rows in turn, by their place: the largest element of the next row there and the sum of the
/// last one's exponentials, not yet over the lanes.
struct Lanes {
  static constexpr std::int64_t Most = MostTogether * HWY_MAX_BYTES / 4;
  HWY_ALIGN float largest[Most];
  HWY_ALIGN float sum[Most];
  double blocks[MostTogether];  // what the sum holds beside the lanes

  HWY_INLINE float shift(std::int64_t k) const {
    const Tag<float> d;
    return hn::GetLane(hn::MaxOfLanes(d, hn::Load(d, largest + k * lanes<float>())));
  }
  HWY_INLINE float factor(std::int64_t k) const {
    const Tag<float> d;
    const float last = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, sum + k * lanes<float>())));
    return static_cast<float>(1 / (blocks[k] + static_cast<double>(last)));
  }
};

// y = room * factor where kScale; room = exp(x - shift) and its sum; the largest element of next.
// The arithmetic of one row takes about as long as memory takes to read one and write another.
template <bool kScale, bool kLarge>
HWY_INLINE void turn(Turn t, Lanes& to, std::int64_t k) {
  Largest largest;
  Sum<float> sum;
  double blocks = 0;
  for (std::int64_t first = 0; first < t.width; first += SumBlock) {
    if (first > 0) {
      blocks += static_cast<double>(sum.total());
      sum = Sum<float>();
    }
    for_vectors<float>(std::min(SumBlock, t.width - first), [&](std::int64_t j, auto part, int p) {
      const std::int64_t i = first + j;
      if (kLarge) hwy::Prefetch(t.next + i + Ahead);
      largest.add(0, load(t.next + i, part), part);
      if (kScale) {
        put<kLarge, float>(hn::Mul(load(t.room + i, part), fill(t.factor)), t.y + i, part);
      }
      const Float shifted = hn::Sub(load(t.x + i, part), fill(t.shift));
      const Float e = keep<float>(math::exp_flushed_by_table(shifted), part);
      store<float>(e, t.room + i, part);
      sum.add(p, e);
    });
  }
  const Tag<float> d;
  hn::Store(largest.part[0], d, to.largest + k * lanes<float>());
  hn::Store(hn::Add(hn::Add(sum.part[0], sum.part[1]), hn::Add(sum.part[2], sum.part[3])), d,
            to.sum + k * lanes<float>());
  to.blocks[k] = blocks;
}

template <bool kLarge>
HWY_INLINE void scaled(const float* room, std::int64_t width, float factor, float* y) {
  for_vectors<float>(width, [&](std::int64_t i, auto part, int) {
    put<kLarge, float>(hn::Mul(load(room + i, part), fill(factor)), y + i, part);
  });
}

/// Rows in turn.
HWY_INLINE std::int64_t turns(std::int64_t rows, std::int64_t width) {
  return std::min(rows, rows_together<float>(2 * width));
}

// Row r is scaled in the turn of row r + together, and its largest element taken in that of row
// r - together. Its place in room, which holds so many rows, is r % together. What a turn needs is
// taken over the lanes one turn before: that is a chain as long as the turn of a short row.
template <bool kLarge>
HWY_FLATTEN void softmax_turns(const float* x, std::int64_t rows, std::int64_t width, float* y,
                               float* room) {
  const std::int64_t together = turns(rows, width);
  float shift[MostTogether] = {};
  Lanes sums;
  for (std::int64_t r = 0; r < together; ++r) shift[r] = row_max(x + r * width, width);
  float next_shift = shift[0], next_factor = 0;
  for (std::int64_t r = 0, k = 0; r < rows; ++r) {
    const std::int64_t next = r + together < rows ? r + together : r;
    const Turn t{width,
                 x + next * width,
                 x + r * width,
                 next_shift,
                 room + k * width,
                 next_factor,
                 y + std::max<std::int64_t>(r - together, 0) * width};
    const std::int64_t after = k + 1 < together ? k + 1 : 0;
    if (r < together) {
      next_shift = shift[after];
      turn<false, kLarge>(t, sums, k);
    } else {
      turn<true, kLarge>(t, sums, k);
    }
    if (r + 1 >= together) {
      next_shift = sums.shift(after);
      next_factor = sums.factor(after);
    }
    k = after;
  }
  for (std::int64_t r = rows - together; r < rows; ++r) {
    const std::int64_t k = r % together;
    scaled<kLarge>(room + k * width, width, sums.factor(k), y + r * width);
  }
  end_stream<kLarge>();
}

void softmax(const float* x, std::int64_t rows, std::int64_t width, float* y, float* room,
             bool large) {
  large ? softmax_turns<true>(x, rows, width, y, room)
        : softmax_turns<false>(x, rows, width, y, room);
}

std::int64_t softmax_room(std::int64_t rows, std::int64_t width) {
  return turns(rows, width) * width;
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
