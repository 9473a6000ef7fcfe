#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/layers/norm/row_stats.hpp>
#include <string>
#include <vector>

#include "tests/core/kernels/kernel_test.hpp"
#include "tests/support/sanitizer.hpp"

// Shared by the tests of the norm kernels: data, buffers that show every write, the modes of
// running.
namespace steady::testing {

/// Reproducible numbers, nearly uniform in [-1, 1).
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : state_(seed * 2 + 1) {}
  double next() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<double>(state_ >> 11) * 0x1p-52 - 1.0;
  }
  template <class T>
  std::vector<T> fill(std::int64_t n, double scale = 1, double offset = 0) {
    std::vector<T> v(static_cast<std::size_t>(n));
    for (T& e : v) e = static_cast<T>(offset + scale * next());
    return v;
  }

 private:
  std::uint64_t state_;
};

template <class T>
std::vector<T> nans(std::int64_t n) {
  return std::vector<T>(static_cast<std::size_t>(n), std::numeric_limits<T>::quiet_NaN());
}

/// Largest |a - b| / scale; equal values have no error, a NaN counts as infinite.
template <class A, class B>
double max_error(const std::vector<A>& a, const std::vector<B>& b,
                 const std::vector<double>& scale) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    const double e = d == 0 ? 0 : d / scale[i];
    worst = std::isnan(e) ? std::numeric_limits<double>::infinity() : std::max(worst, e);
  }
  return worst;
}

/// Runs body once per SIMD target that this machine supports.
template <class Body>
void on_every_target(Body body) {
  test::for_each_simd_target(body);
}

template <class T>
bool with_largest() {
  return sizeof(T) == 4 && !test::under_address_sanitizer();
}

/// body(shape, offset, scale) for the rows, widths, offsets and scales at which faults of norms
/// were reported. The largest shape comes in float32 with one offset and scale, and not under the
/// address sanitizer, where its rows and its width are met at the smaller shapes.
template <class T, class Body>
void for_each_row_sweep(Body body) {
  for (const std::int64_t rows : {1, 2, 3, 1025}) {
    for (const std::int64_t width : {1, 2, 3, 7, 16, 17, 4099}) {
      for (const double offset : {0.0, 1e3, 1e4, 1e6}) {
        for (const double scale : {1e-4, 1.0, 1e4}) {
          const bool large = rows * width > 200000;
          if (large && (!with_largest<T>() || offset != 1e4 || scale != 1.0)) continue;
          SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(width) + ", offset " +
                       std::to_string(offset) + ", scale " + std::to_string(scale));
          body(RowShape{rows, width, width}, offset, scale);
        }
      }
    }
  }
}

/// Runs body with 1, 2, 3 and 8 threads and restores the number.
template <class Body>
void with_threads(Body body) {
  const int before = num_threads();
  for (const int threads : {1, 2, 3, 8}) {
    set_num_threads(threads);
    body(threads);
  }
  set_num_threads(before);
}

}  // namespace steady::testing
