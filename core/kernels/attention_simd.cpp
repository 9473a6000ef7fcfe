#include <cmath>
#include <limits>
#include <steadygrad/core/kernels/attention_rows.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/attention_simd.cpp"
#include <hwy/foreach_target.h>

#include <steadygrad/core/kernels/softmax-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

using kernels::Strip;
using math::Float;

HWY_FLATTEN void softmax_strip(const Strip& strip, float* s, float* factor, double* lse) {
  for (std::int64_t r = 0; r < strip.rows; ++r, s += strip.stride) {
    const std::int64_t n = strip.visible(r);
    std::fill(s + n, s + strip.width, 0.0F);
    if (n == 0) {
      factor[r] = 0;
      lse[r] = -std::numeric_limits<double>::infinity();
      continue;
    }
    const float shift = row_max(s, n);
    const double total = row_sum(n, [&](std::int64_t j, auto part) {
      const Float e = keep<float>(math::exp_flushed(hn::Sub(load(s + j, part), fill(shift))), part);
      store<float>(e, s + j, part);
      return e;
    });
    factor[r] = static_cast<float>(1 / total);
    lse[r] = static_cast<double>(shift) + std::log(total);
  }
}

/// lse = high + low in float: s - high is exact near lse.
HWY_FLATTEN void backward(const Strip& strip, const double* lse, float scale, float* s, float* dp) {
  const Float factor = fill(scale);
  for (std::int64_t r = 0; r < strip.rows; ++r, s += strip.stride, dp += strip.stride) {
    const std::int64_t n = strip.visible(r);
    const Float high = fill(static_cast<float>(lse[r]));
    const Float low = fill(static_cast<float>(lse[r] - static_cast<double>(hn::GetLane(high))));
    const double dot = row_sum(n, [&](std::int64_t j, auto part) {
      const Float p = math::exp_flushed(hn::Sub(hn::Sub(load(s + j, part), high), low));
      store<float>(p, s + j, part);
      return keep<float>(hn::Mul(p, load(dp + j, part)), part);
    });
    const Float mean = fill(static_cast<float>(dot));
    for_vectors<float>(n, [&](std::int64_t j, auto part, int) {
      const Float p = hn::Mul(load(s + j, part), factor);
      store<float>(hn::Mul(p, hn::Sub(load(dp + j, part), mean)), dp + j, part);
    });
    std::fill(s + n, s + strip.width, 0.0F);
    std::fill(dp + n, dp + strip.width, 0.0F);
  }
}

/// y *= x, over the keys seen.
HWY_FLATTEN void multiply(const Strip& strip, const float* x, float* y) {
  for (std::int64_t r = 0; r < strip.rows; ++r, x += strip.stride, y += strip.stride) {
    for_vectors<float>(strip.visible(r), [&](std::int64_t j, auto part, int) {
      store<float>(hn::Mul(load(y + j, part), load(x + j, part)), y + j, part);
    });
  }
}

HWY_FLATTEN void score_query(const float* q, const float* k, std::int64_t stride, std::int64_t keys,
                             std::int64_t width, float scale, float* s) {
  for (std::int64_t j = 0; j < keys; ++j, k += stride) {
    Sum<float> sum;
    for_vectors<float>(width, [&](std::int64_t c, auto part, int i) {
      sum.add_product(i, load(q + c, part), load(k + c, part));
    });
    s[j] = scale * sum.total();
  }
}

HWY_FLATTEN void weigh_values(const float* s, const float* v, std::int64_t stride,
                              std::int64_t keys, std::int64_t width, float* y) {
  for_vectors<float>(width, [&](std::int64_t c, auto part, int) {
    Sum<float> sum;  // the keys in four chains
    std::int64_t j = 0;
    for (; j + 4 <= keys; j += 4) {
      for (int i = 0; i < 4; ++i)
        sum.add_product(i, fill(s[j + i]), load(v + (j + i) * stride + c, part));
    }
    for (; j < keys; ++j) sum.add_product(0, fill(s[j]), load(v + j * stride + c, part));
    const Float total =
        hn::Add(hn::Add(sum.part[0], sum.part[1]), hn::Add(sum.part[2], sum.part[3]));
    store<float>(total, y + c, part);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace steady {
namespace {
HWY_EXPORT(softmax_strip);
HWY_EXPORT(backward);
HWY_EXPORT(multiply);
HWY_EXPORT(score_query);
HWY_EXPORT(weigh_values);
}  // namespace

namespace kernels {

void softmax_strip(const Strip& strip, float* s, float* factor, double* lse) {
  HWY_DYNAMIC_DISPATCH(softmax_strip)(strip, s, factor, lse);
}

void multiply_strip(const Strip& strip, const float* keep, float* s) {
  HWY_DYNAMIC_DISPATCH(multiply)(strip, keep, s);
}

void softmax_strip_backward(const Strip& strip, const double* lse, float scale, const float* keep,
                            float* s, float* dp) {
  if (keep != nullptr) multiply_strip(strip, keep, dp);
  HWY_DYNAMIC_DISPATCH(backward)(strip, lse, scale, s, dp);
  if (keep != nullptr) multiply_strip(strip, keep, s);
}

void score_query(const float* q, const float* k, std::int64_t stride, std::int64_t keys,
                 std::int64_t width, float scale, float* s) {
  HWY_DYNAMIC_DISPATCH(score_query)(q, k, stride, keys, width, scale, s);
}

void weigh_values(const float* s, const float* v, std::int64_t stride, std::int64_t keys,
                  std::int64_t width, float* y) {
  HWY_DYNAMIC_DISPATCH(weigh_values)(s, v, stride, keys, width, y);
}

}  // namespace kernels
}  // namespace steady
#endif
