#include "bench/limits.hpp"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/ours/limits.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, which fixes the target they are read for.
#include <steadygrad/core/kernels/math-inl.hpp>
#include <steadygrad/core/kernels/softmax-inl.hpp>
#include <steadygrad/core/kernels/stream-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

using bench::LimitArrays;
using math::Float;

// Statistics and means of a row, of any value.
constexpr float Mean = 0.1F, NextMean = 0.2F, Low = 1e-8F, Rstd = 1.1F, MeanW = 0.01F,
                MeanWx = 0.02F;

HWY_INLINE Float xhat(Float x) { return fma(hn::Sub(x, fill(Mean)), fill(Rstd), fill(Low)); }

/// w - m(w) - xhat * m(w * xhat).
HWY_INLINE Float centred(Float xhat, Float w) {
  return fnma(xhat, fill(MeanWx), hn::Sub(w, fill(MeanW)));
}

template <bool kArithmetic>
HWY_FLATTEN float backward_rows(const LimitArrays& a) {
  const float* const gamma = a.gamma;
  float *const dgamma = a.dgamma, *const dbeta = a.dbeta;
  float total = 0;
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const float* const x = a.x + r * a.width;
    const float* const dy = a.dy + r * a.width;
    const std::int64_t ahead = r + 1 < a.rows ? a.width : 0;
    float* const out = a.out + r * a.width;
    Sum<float> s1, s2;
    for_vectors<float>(a.width, [&](std::int64_t i, auto part, [[maybe_unused]] int k) HWY_ATTR {
      const Float u = load(dy + i, part), v = load(x + i, part), g = load(gamma + i, part);
      const Float dg = load<float>(dgamma + i, part), db = load<float>(dbeta + i, part);
      const Float next_u = load(dy + ahead + i, part), next_v = load(x + ahead + i, part);
      if constexpr (kArithmetic) {
        const Float h = xhat(v);
        store<float>(fma(u, h, dg), dgamma + i, part);
        store<float>(hn::Add(u, db), dbeta + i, part);
        store<float>(hn::Mul(fill(Rstd), centred(h, hn::Mul(u, g))), out + i, part);
        const Float w = hn::Mul(next_u, g);
        s1.add(k, w);
        s2.add_product(k, w, hn::Sub(next_v, fill(NextMean)));
      } else {
        store<float>(hn::Add(v, dg), dgamma + i, part);
        store<float>(hn::Add(u, db), dbeta + i, part);
        store<float>(hn::Add(hn::Add(g, next_v), next_u), out + i, part);
      }
    });
    total += s1.total() + s2.total();
  }
  return total;
}

// Row r is written in the loop that reads row r + 2. With arithmetic: also summed there, the plain
// moments in float, and no guard against what overflows or cancels.
template <bool kArithmetic>
HWY_FLATTEN float forward_rows(const LimitArrays& a) {
  constexpr std::int64_t Lag = 2;
  const float *const gamma = a.gamma, *const beta = a.dbeta;
  const float inverse = 1.0F / static_cast<float>(a.width);
  float mean[Lag] = {Mean, Mean}, rstd[Lag] = {Rstd, Rstd};
  float total = 0;
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const float* const x = a.x + r * a.width;
    const float* const next = x + (r + Lag < a.rows ? Lag * a.width : 0);
    float* const out = a.out + r * a.width;
    const Float m = fill(mean[r % Lag]), s = fill(rstd[r % Lag]);
    Sum<float> sum, squares;
    for_vectors<float>(a.width, [&](std::int64_t i, auto part, [[maybe_unused]] int k) HWY_ATTR {
      const Float v = load(x + i, part), g = load(gamma + i, part), b = load(beta + i, part);
      const Float next_v = load(next + i, part);
      if constexpr (kArithmetic) {
        store<float>(fma(fma(hn::Sub(v, m), s, fill(Low)), g, b), out + i, part);
        const Float d = hn::Sub(next_v, fill(NextMean));
        sum.add(k, d);
        squares.add_product(k, d, d);
      } else {
        store<float>(hn::Add(hn::Add(v, g), hn::Add(b, next_v)), out + i, part);
      }
    });
    if constexpr (kArithmetic) {
      const float low = sum.total() * inverse;
      mean[r % Lag] = NextMean + low;
      rstd[r % Lag] = 1.0F / std::sqrt(squares.total() * inverse - low * low + 1e-5F);
      total += mean[r % Lag];
    }
  }
  return total;
}

float layer_norm_forward(const LimitArrays& a) { return forward_rows<true>(a); }
float layer_norm_forward_memory(const LimitArrays& a) { return forward_rows<false>(a); }

float layer_norm(const LimitArrays& a) { return backward_rows<true>(a); }
float layer_norm_memory(const LimitArrays& a) { return backward_rows<false>(a); }

// x and dy are a register each, a little larger every time: nothing is loaded, and nothing computed
// once for all. The next row has a gamma and a mean of its own for the same reason; out, which
// would be stored, is summed by the multiplication that ends it.
HWY_FLATTEN float layer_norm_arithmetic(const LimitArrays& a) {
  const Float step = fill(1e-6F), g = fill(a.gamma[0]), next_g = fill(a.gamma[1]);
  Float v = fill(a.x[0]), u = fill(a.dy[0]);
  Sum<float> dgamma, dbeta, out, s1, s2;
  for_vectors<float>(a.rows * a.width, [&](std::int64_t, auto, int k) HWY_ATTR {
    v = hn::Add(v, step);
    u = hn::Add(u, step);
    const Float h = xhat(v);
    dgamma.add_product(k, u, h);
    dbeta.add(k, u);
    out.add_product(k, fill(Rstd), centred(h, hn::Mul(u, g)));
    const Float w = hn::Mul(u, next_g);
    s1.add(k, w);
    s2.add_product(k, w, hn::Sub(v, fill(NextMean)));
  });
  return dgamma.total() + dbeta.total() + out.total() + s1.total() + s2.total();
}

template <bool kBackward, bool kLarge>
HWY_FLATTEN float two_passes(const LimitArrays& a) {
  float total = 0;
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const float* const x = a.x + r * a.width;
    const float* const dy = a.dy + r * a.width;
    float* const out = a.out + r * a.width;
    const std::int64_t ahead = r + 1 < a.rows ? a.width : 0;
    Sum<float> sum;
    for_vectors<float>(a.width, [=, &sum](std::int64_t i, auto part, int k) HWY_ATTR {
      if constexpr (kBackward) {
        sum.add_product(k, load(x + i, part), load(dy + i, part));
      } else {
        sum.add(k, load(x + i, part));
      }
    });
    total += sum.total();
    for_vectors<float>(a.width, [=](std::int64_t i, auto part, int) HWY_ATTR {
      if constexpr (kLarge) hwy::Prefetch(x + ahead + i);
      if constexpr (kLarge && kBackward) hwy::Prefetch(dy + ahead + i);
      Float v = load(x + i, part);
      if constexpr (kBackward) v = fma(load(dy + i, part), fill(0.5F), v);
      put<kLarge, float>(v, out + i, part);
    });
  }
  end_stream<kLarge>();
  return total;
}

float read_copy(const LimitArrays& a) { return two_passes<false, false>(a); }
float read_copy_large(const LimitArrays& a) { return two_passes<false, true>(a); }
float read_triad(const LimitArrays& a) { return two_passes<true, false>(a); }
float read_triad_large(const LimitArrays& a) { return two_passes<true, true>(a); }

// Both passes with the arithmetic of a norm: the coefficients of the second one are constants.
template <bool kBackward>
HWY_FLATTEN float norm_passes(const LimitArrays& a) {
  float total = 0;
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const float* const x = a.x + r * a.width;
    const float* const dy = a.dy + r * a.width;
    float* const out = a.out + r * a.width;
    const Float pivot = fill(x[0]), mean = fill(NextMean), rstd = fill(Rstd), low = fill(0.5F);
    Sum<float> first, second;
    for_vectors<float>(a.width, [&](std::int64_t i, auto part, int k) HWY_ATTR {
      const Float d = hn::Sub(load(x + i, part), pivot);
      const Float u = kBackward ? load(dy + i, part) : d;
      first.add(k, u);
      second.add_product(k, u, d);
    });
    total += first.total() + second.total();
    for_vectors<float>(a.width, [=](std::int64_t i, auto part, int) HWY_ATTR {
      Float v = fma(hn::Sub(load(x + i, part), mean), rstd, low);
      if constexpr (kBackward) v = fma(load(dy + i, part), rstd, v);
      put<false, float>(v, out + i, part);
    });
  }
  return total;
}

float norm_forward(const LimitArrays& a) { return norm_passes<false>(a); }
float norm_backward(const LimitArrays& a) { return norm_passes<true>(a); }

HWY_FLATTEN float exponentials(const LimitArrays& a) {
  double total = 0;
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const Float shift = fill(1.0F + static_cast<float>(r % 2));  // no row is the last one's
    total += row_sum(a.width, [&](std::int64_t i, auto part) HWY_ATTR {
      return keep<float>(math::exp_flushed_by_table(hn::Sub(load(a.x + i, part), shift)), part);
    });
  }
  return static_cast<float>(total);
}

HWY_FLATTEN float softmax_memory(const LimitArrays& a) {
  float total = 0;
  float* const room = a.dgamma;
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const float* const x = a.x + r * a.width;
    float* const out = a.out + r * a.width;
    total += row_max(x, a.width);
    for_vectors<float>(a.width, [=](std::int64_t i, auto part, int)
                                    HWY_ATTR { store<float>(load(x + i, part), room + i, part); });
    for_vectors<float>(a.width, [=](std::int64_t i, auto part, int) HWY_ATTR {
      store<float>(load<float>(room + i, part), out + i, part);
    });
  }
  return total;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace steady {
namespace {
HWY_EXPORT(layer_norm_forward);
HWY_EXPORT(layer_norm_forward_memory);
HWY_EXPORT(layer_norm);
HWY_EXPORT(layer_norm_memory);
HWY_EXPORT(layer_norm_arithmetic);
HWY_EXPORT(read_copy);
HWY_EXPORT(read_copy_large);
HWY_EXPORT(read_triad);
HWY_EXPORT(read_triad_large);
HWY_EXPORT(norm_forward);
HWY_EXPORT(norm_backward);
HWY_EXPORT(exponentials);
HWY_EXPORT(softmax_memory);
}  // namespace

namespace bench {

float limit_layer_norm_forward(const LimitArrays& a) {
  return HWY_DYNAMIC_DISPATCH(layer_norm_forward)(a);
}
float limit_layer_norm_forward_memory(const LimitArrays& a) {
  return HWY_DYNAMIC_DISPATCH(layer_norm_forward_memory)(a);
}
float limit_layer_norm(const LimitArrays& a) { return HWY_DYNAMIC_DISPATCH(layer_norm)(a); }
float limit_layer_norm_memory(const LimitArrays& a) {
  return HWY_DYNAMIC_DISPATCH(layer_norm_memory)(a);
}
float limit_layer_norm_arithmetic(const LimitArrays& a) {
  return HWY_DYNAMIC_DISPATCH(layer_norm_arithmetic)(a);
}
float limit_read_copy(const LimitArrays& a, bool large) {
  return large ? HWY_DYNAMIC_DISPATCH(read_copy_large)(a) : HWY_DYNAMIC_DISPATCH(read_copy)(a);
}
float limit_read_triad(const LimitArrays& a, bool large) {
  return large ? HWY_DYNAMIC_DISPATCH(read_triad_large)(a) : HWY_DYNAMIC_DISPATCH(read_triad)(a);
}
float limit_norm_forward(const LimitArrays& a) { return HWY_DYNAMIC_DISPATCH(norm_forward)(a); }
float limit_norm_backward(const LimitArrays& a) { return HWY_DYNAMIC_DISPATCH(norm_backward)(a); }
float limit_exponentials(const LimitArrays& a) { return HWY_DYNAMIC_DISPATCH(exponentials)(a); }
float limit_softmax_memory(const LimitArrays& a) { return HWY_DYNAMIC_DISPATCH(softmax_memory)(a); }

}  // namespace bench
}  // namespace steady
#endif
