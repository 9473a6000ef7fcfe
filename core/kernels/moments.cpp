#include <algorithm>
#include <cmath>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/reduce.hpp>
#include <steadygrad/core/kernels/reduce_forms.hpp>
#include <steadygrad/core/parallel.hpp>
#include <vector>

namespace steady::kernels {
namespace {

constexpr std::int64_t Chunk = 32768;

/// Sum of (x[i] - mean)^2 in eight double lanes.
template <class T>
double square_deviations(const T* x, std::int64_t n, double mean) {
  constexpr std::int64_t Lanes = 8;
  double lane[Lanes] = {};
  std::int64_t i = 0;
  for (; i + Lanes <= n; i += Lanes) {
    for (std::int64_t j = 0; j < Lanes; ++j) {
      const double d = static_cast<double>(x[i + j]) - mean;
      lane[j] += d * d;
    }
  }
  for (std::int64_t j = 0; i < n; ++i, ++j) {
    const double d = static_cast<double>(x[i]) - mean;
    lane[j] += d * d;
  }
  return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

template <class T>
void add_square_deviations(const T* x, std::int64_t pitch, std::int64_t rows, std::int64_t columns,
                           const double* mean, double* acc) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = 0; j < columns; ++j) {
      const double d = static_cast<double>(x[r * pitch + j]) - mean[j];
      acc[j] += d * d;
    }
  }
}

/// Any set of axes: the squared deviations as a tensor in double, then its sum.
template <class T>
void variance_of_several(std::span<const T> x, Extents extents, AxisMask mask,
                         std::span<const double> mean, std::span<double> out) {
  std::array<std::int64_t, MaxAxes> kept{};
  for (std::size_t axis = 0; axis < extents.size(); ++axis)
    kept[axis] = ((mask >> axis) & 1U) != 0 ? 1 : extents[axis];
  const Broadcast plan = make_broadcast({extents, {kept.data(), extents.size()}}, "variance");
  const std::int64_t step = plan.stride[1][static_cast<std::size_t>(plan.rank - 1)];
  std::vector<double> square(x.size());
  for_each_row(plan, 0, plan.numel, [&](std::int64_t at, const auto& from, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const double d = static_cast<double>(x[static_cast<std::size_t>(at + i)]) -
                       mean[static_cast<std::size_t>(from[1] + i * step)];
      square[static_cast<std::size_t>(at + i)] = d * d;
    }
  });
  sum<double>(square, extents, mask, out);
}

}  // namespace

template <class T>
void variance(std::span<const T> x, Extents extents, AxisMask mask, int correction,
              std::span<T> y) {
  const auto count = static_cast<double>(reduced_count(extents, mask));
  std::vector<double> mean(y.size());
  sum_in_double(x, extents, mask, std::span<double>(mean), 1 / count);
  const double divisor = count - correction;
  const double factor = divisor > 0 ? 1 / divisor : std::numeric_limits<double>::quiet_NaN();
  const Forms forms = make_forms(extents, mask);
  if (forms.size > 1) {
    std::vector<double> total(y.size());
    variance_of_several(x, extents, mask, mean, std::span<double>(total));
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<T>(factor * total[i]);
    return;
  }
  const Form& form = forms.form[0];
  reduce_in_chunks(form, factor, y.data(),
                   [&](std::int64_t o, std::int64_t row, std::int64_t rows, std::int64_t column,
                       std::int64_t columns, double* acc) {
                     const T* first = x.data() + (o * form.count + row) * form.inner + column;
                     const double* m = mean.data() + o * form.inner + column;
                     if (form.inner == 1)
                       acc[0] += square_deviations(first, rows, *m);
                     else
                       add_square_deviations(first, form.inner, rows, columns, m, acc);
                   });
}

template <class T>
double sum_squares(std::span<const T> x) {
  return parallel_sum(std::ssize(x), Chunk, [&](std::int64_t begin, std::int64_t end) {
    return square_deviations(x.data() + begin, end - begin, 0.0);
  });
}

template <class T>
double max_abs(std::span<const T> x) {
  if (x.empty()) return 0;
  const std::int64_t chunks = (std::ssize(x) + Chunk - 1) / Chunk;
  std::vector<T> partial(static_cast<std::size_t>(chunks));
  parallel_for(std::ssize(x), Chunk, [&](std::int64_t begin, std::int64_t end) {
    T best = 0;
    bool nan = false;
    for (std::int64_t i = begin; i < end; ++i) {
      const T value = std::abs(x[static_cast<std::size_t>(i)]);
      best = value > best ? value : best;
      nan |= value != value;
    }
    partial[static_cast<std::size_t>(begin / Chunk)] =
        nan ? std::numeric_limits<T>::quiet_NaN() : best;
  });
  T best = 0;
  for (const T value : partial) {
    if (value != value) return static_cast<double>(value);
    best = std::max(best, value);
  }
  return static_cast<double>(best);
}

template void variance(std::span<const float>, Extents, AxisMask, int, std::span<float>);
template double sum_squares(std::span<const float>);
template double max_abs(std::span<const float>);
template void variance(std::span<const double>, Extents, AxisMask, int, std::span<double>);
template double sum_squares(std::span<const double>);
template double max_abs(std::span<const double>);

}  // namespace steady::kernels
