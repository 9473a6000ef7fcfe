#include <steadygrad/core/stats.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/tensor_stats.hpp>

namespace steady {
namespace {

static_assert(TensorStats::Bins == kernels::MagnitudeBins);
static_assert(TensorStats::LowestExponent == kernels::LowestMagnitude);

constexpr double NaN = std::numeric_limits<double>::quiet_NaN();

void check_alike(const char* op, const Tensor& a, const Tensor& b) {
  check_defined(op, "a", a);
  check_defined(op, "b", b);
  STEADY_CHECK(ShapeError, a.shape() == b.shape() && a.dtype() == b.dtype(),
               "{}: needs two tensors of one shape and dtype; got a {}, b {}", op, describe(a),
               describe(b));
}

}  // namespace

TensorStats tensor_stats(const Tensor& x) {
  check_defined("tensor_stats", "x", x);
  const kernels::StatsSums sums = dispatch_float("tensor_stats", x.dtype(), [&]<FloatElement T>() {
    return kernels::tensor_stats<T>(x.data<T>());
  });
  TensorStats s{.count = sums.count, .histogram = sums.histogram};
  const auto count = static_cast<double>(sums.count);
  const auto finite = static_cast<double>(sums.count - sums.non_finite);
  if (sums.count > 0) {
    s.zeros = static_cast<double>(sums.zeros) / count;
    s.non_finite = static_cast<double>(sums.non_finite) / count;
  }
  if (finite == 0) {
    s.mean = s.std = s.rms = s.max_abs = NaN;
    return s;
  }
  s.mean = sums.mean;
  s.std = std::sqrt(sums.m2 / finite);
  s.rms = std::sqrt(sums.m2 / finite + sums.mean * sums.mean);
  s.max_abs = sums.max_abs;
  return s;
}

TensorStats difference_stats(const Tensor& a, const Tensor& b) {
  check_alike("difference_stats", a, b);
  Tensor difference = Tensor::empty(a.shape(), a.dtype());
  dispatch_float("difference_stats", a.dtype(), [&]<FloatElement T>() {
    kernels::difference<T>(a.data<T>(), b.data<T>(), difference.mutable_data<T>());
  });
  return tensor_stats(difference);
}

double cosine(const Tensor& a, const Tensor& b) {
  check_alike("cosine", a, b);
  const kernels::InnerProducts p = dispatch_float("cosine", a.dtype(), [&]<FloatElement T>() {
    return kernels::inner_products<T>(a.data<T>(), b.data<T>());
  });
  const double norms = std::sqrt(p.aa) * std::sqrt(p.bb);
  if (!(norms > 0) || !std::isfinite(norms)) return NaN;
  return std::clamp(p.ab / norms, -1.0, 1.0);
}

}  // namespace steady
