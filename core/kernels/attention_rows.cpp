#include <steadygrad/core/kernels/attention_rows.hpp>

#include <cmath>
#include <limits>

namespace steady::kernels {

void softmax_strip(const Strip& strip, double* s, double* factor, double* lse) {
  for (std::int64_t r = 0; r < strip.rows; ++r, s += strip.stride) {
    const std::int64_t n = strip.visible(r);
    std::fill(s + n, s + strip.width, 0.0);
    factor[r] = 0;
    lse[r] = -std::numeric_limits<double>::infinity();
    if (n == 0) continue;
    const double shift = *std::max_element(s, s + n);
    double total = 0;
    for (std::int64_t j = 0; j < n; ++j) total += s[j] = std::exp(s[j] - shift);
    factor[r] = 1 / total;
    lse[r] = shift + std::log(total);
  }
}

void multiply_strip(const Strip& strip, const double* keep, double* s) {
  for (std::int64_t r = 0; r < strip.rows; ++r, s += strip.stride, keep += strip.stride) {
    for (std::int64_t j = 0; j < strip.visible(r); ++j) s[j] *= keep[j];
  }
}

void softmax_strip_backward(const Strip& strip, const double* lse, double scale, const double* keep,
                            double* s, double* dp) {
  for (std::int64_t r = 0; r < strip.rows; ++r, s += strip.stride, dp += strip.stride) {
    const std::int64_t n = strip.visible(r);
    const auto kept = [&](std::int64_t j) {
      return keep == nullptr ? 1.0 : keep[r * strip.stride + j];
    };
    double dot = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      s[j] = std::exp(s[j] - lse[r]);
      dp[j] *= kept(j);
      dot += s[j] * dp[j];
    }
    for (std::int64_t j = 0; j < n; ++j) {
      dp[j] = scale * s[j] * (dp[j] - dot);
      s[j] *= kept(j);
    }
    std::fill(s + n, s + strip.width, 0.0);
    std::fill(dp + n, dp + strip.width, 0.0);
  }
}

}  // namespace steady::kernels
