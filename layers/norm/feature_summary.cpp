#include <steadygrad/layers/norm/feature_summary.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <steadygrad/core/error.hpp>

namespace steady::detail {
namespace {

constexpr double Infinity = std::numeric_limits<double>::infinity();

/// Ranges and missing values of one batch.
struct Range {
  std::vector<double> low, high;
  std::vector<std::int64_t> missing;
};

template <class T>
Range range_of(const char* op, std::span<const T> x, std::size_t features) {
  Range r{.low = std::vector<double>(features, Infinity),
          .high = std::vector<double>(features, -Infinity),
          .missing = std::vector<std::int64_t>(features, 0)};
  for (std::size_t i = 0; i < x.size(); i += features) {
    for (std::size_t c = 0; c < features; ++c) {
      const auto value = static_cast<double>(x[i + c]);
      STEADY_CHECK(NonFiniteError, !std::isinf(value),
                   "{}: feature {} of row {} is {}; only NaN is taken as a missing value", op, c,
                   i / features, value);
      if (std::isnan(value)) {
        ++r.missing[c];
        continue;
      }
      r.low[c] = std::min(r.low[c], value);
      r.high[c] = std::max(r.high[c], value);
    }
  }
  return r;
}

/// Moments of one column without its NaN, by two passes in double.
template <class T>
Moments moments_without_nan(std::span<const T> x, std::size_t features, std::size_t column) {
  Moments m;
  for (std::size_t i = column; i < x.size(); i += features) {
    if (std::isnan(x[i])) continue;
    m.n += 1;
    m.mean += static_cast<double>(x[i]);
  }
  if (m.n == 0) return {};
  m.mean /= m.n;
  double rest = 0;
  for (std::size_t i = column; i < x.size(); i += features) {
    if (std::isnan(x[i])) continue;
    const double d = static_cast<double>(x[i]) - m.mean;
    m.m2 += d * d;
    rest += d;
  }
  m.m2 -= rest * rest / m.n;  // what the mean's rounding added
  m.mean += rest / m.n;
  return m;
}

template <class T>
std::vector<Moments> moments_of(std::span<const T> x, const ColumnShape& shape,
                                const std::vector<std::int64_t>& missing) {
  std::vector<Moments> moments(missing.size());
  std::vector<double> workspace(static_cast<std::size_t>(column_workspace(shape)));
  column_moments<T>(shape, x, moments, workspace);
  for (std::size_t c = 0; c < moments.size(); ++c) {
    // Squares of large float32 numbers leave float32.
    const bool overflow = !std::isfinite(moments[c].mean) || !std::isfinite(moments[c].m2);
    if (missing[c] > 0 || overflow) moments[c] = moments_without_nan<T>(x, missing.size(), c);
  }
  return moments;
}

}  // namespace

FeatureSummary::FeatureSummary(std::int64_t features, bool keep_values)
    : low(static_cast<std::size_t>(features), Infinity),
      high(static_cast<std::size_t>(features), -Infinity),
      moments(static_cast<std::size_t>(features)),
      keep(keep_values),
      kept(static_cast<std::size_t>(keep_values ? features : 0)) {}

void FeatureSummary::add(const char* op, const Tensor& batch) {
  check_defined(op, "batch", batch);
  const std::size_t features = low.size();
  STEADY_CHECK(ShapeError,
               is_float(batch.dtype()) && batch.rank() >= 1 &&
                   batch.dim(-1) == static_cast<std::int64_t>(features),
               "{}: needs batches [..., {}], f32 or f64; got {}", op, features, describe(batch));
  const ColumnShape shape{.rows = batch.shape().numel(0, batch.rank() - 1),
                          .channels = batch.dim(-1)};
  if (shape.rows == 0) return;
  dispatch_float(op, batch.dtype(), [&]<FloatElement T>() {
    const std::span<const T> x = batch.data<T>();
    const Range range = range_of<T>(op, x, features);
    merge_moments(moments_of<T>(x, shape, range.missing), moments);
    for (std::size_t c = 0; c < features; ++c) {
      low[c] = std::min(low[c], range.low[c]);
      high[c] = std::max(high[c], range.high[c]);
      for (std::size_t i = c; keep && i < x.size(); i += features) {
        if (!std::isnan(x[i])) kept[c].push_back(static_cast<double>(x[i]));
      }
    }
  });
  rows += shape.rows;
}

double quantile(const std::vector<double>& ascending, double q) {
  STEADY_CHECK(Error, !ascending.empty() && q >= 0 && q <= 1,
               "quantile: needs a value and q in [0, 1]; got {} values, q {}", ascending.size(), q);
  const double position = q * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const double share = position - static_cast<double>(below);
  if (share == 0) return ascending[below];
  return ascending[below] + share * (ascending[below + 1] - ascending[below]);
}

}  // namespace steady::detail
