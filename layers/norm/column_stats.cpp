#include <cmath>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/column_stats.hpp>
#include <steadygrad/layers/norm/row_stats.hpp>

namespace steady {

double Moments::unbiased_variance() const {
  return n < 2 ? std::numeric_limits<double>::quiet_NaN() : m2 / (n - 1);
}

Moments merge(const Moments& first, const Moments& second) {
  if (first.n == 0) return second;
  if (second.n == 0) return first;
  const double n = first.n + second.n;
  const double d = second.mean - first.mean;
  return {n, first.mean + d * (second.n / n),
          first.m2 + second.m2 + d * d * (first.n * (second.n / n))};
}

void merge_moments(std::span<const Moments> next, std::span<Moments> total) {
  detail::check_span("merge_moments", "next", next.size(), static_cast<std::int64_t>(total.size()),
                     false);
  for (std::size_t c = 0; c < total.size(); ++c) total[c] = merge(total[c], next[c]);
}

std::int64_t column_workspace(const ColumnShape& shape) { return 64 * 3 * shape.channels; }

template <class T>
void column_moments(const ColumnShape& shape, std::span<const T> x, std::span<Moments> moments,
                    std::span<double> workspace) {
  const char* op = "column_moments";
  detail::check_span(op, "x", x.size(), shape.elements(), false);
  detail::check_span(op, "moments", moments.size(), shape.channels, false);
  detail::check_span(op, "workspace", workspace.size(), column_workspace(shape), false);
  const auto channels = static_cast<std::size_t>(shape.channels);
  for (std::size_t c = 0; c < channels; ++c) {
    double mean = 0, m2 = 0;
    for (std::size_t i = c; i < x.size(); i += channels) mean += double(x[i]);
    mean /= double(shape.rows);
    for (std::size_t i = c; i < x.size(); i += channels) {
      m2 += (double(x[i]) - mean) * (double(x[i]) - mean);
    }
    moments[c] = shape.rows == 0 ? Moments{} : Moments{double(shape.rows), mean, m2};
  }
}
template void column_moments(const ColumnShape&, std::span<const float>, std::span<Moments>,
                             std::span<double>);
template void column_moments(const ColumnShape&, std::span<const double>, std::span<Moments>,
                             std::span<double>);

}  // namespace steady
