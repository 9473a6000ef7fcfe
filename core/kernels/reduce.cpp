#include <algorithm>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/reduce.hpp>
#include <steadygrad/core/kernels/reduce_forms.hpp>
#include <steadygrad/core/parallel.hpp>
#include <vector>

namespace steady::kernels {
namespace {

/// Sum in eight double lanes.
template <class T>
double short_sum(const T* x, std::int64_t n) {
  constexpr std::int64_t Lanes = 8;
  double lane[Lanes] = {};
  std::int64_t i = 0;
  for (; i + Lanes <= n; i += Lanes)
    for (std::int64_t j = 0; j < Lanes; ++j) lane[j] += static_cast<double>(x[i + j]);
  for (std::int64_t j = 0; i < n; ++i, ++j) lane[j] += static_cast<double>(x[i]);
  return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

/// Sum of n values: blocks of 256 in T (32 lanes of 8 values), the blocks in double.
template <class T>
double row_sum(const T* x, std::int64_t n) {
  constexpr std::int64_t Lanes = 32;
  constexpr std::int64_t Block = 8 * Lanes;
  double total = 0;
  std::int64_t i = 0;
  for (; i + Block <= n; i += Block) {
    T lane[Lanes];
    std::copy_n(x + i, Lanes, lane);
    for (std::int64_t k = i + Lanes; k < i + Block; k += Lanes)
      for (std::int64_t j = 0; j < Lanes; ++j) lane[j] += x[k + j];
    for (std::int64_t half = Lanes / 2; half > 0; half /= 2)
      for (std::int64_t j = 0; j < half; ++j) lane[j] += lane[j + half];
    total += static_cast<double>(lane[0]);
  }
  return total + short_sum(x + i, n - i);
}

/// acc[j] += sum of x[r, j] over rows of `pitch` elements; eight rows in T, then once in double.
template <class T>
void column_sums(const T* x, std::int64_t pitch, std::int64_t rows, std::int64_t columns,
                 double* acc) {
  std::int64_t r = 0;
  for (; r + 8 <= rows; r += 8) {
    const T* p = x + r * pitch;
    for (std::int64_t j = 0; j < columns; ++j) {
      const T* q = p + j;
      const T low = (q[0] + q[pitch]) + (q[2 * pitch] + q[3 * pitch]);
      const T high = (q[4 * pitch] + q[5 * pitch]) + (q[6 * pitch] + q[7 * pitch]);
      acc[j] += static_cast<double>(low + high);
    }
  }
  for (; r < rows; ++r)
    for (std::int64_t j = 0; j < columns; ++j) acc[j] += static_cast<double>(x[r * pitch + j]);
}

template <class T, class Out>
void sum_form(const T* x, const Form& form, Out* y, double factor) {
  reduce_in_chunks(form, factor, y,
                   [&](std::int64_t o, std::int64_t row, std::int64_t rows, std::int64_t column,
                       std::int64_t columns, double* acc) {
                     const T* first = x + (o * form.count + row) * form.inner + column;
                     if (form.inner == 1)
                       acc[0] += row_sum(first, rows);
                     else
                       column_sums(first, form.inner, rows, columns, acc);
                   });
}

/// sum with the result in Out and double between the forms.
template <class T, class Out>
void sum_into(std::span<const T> x, Extents extents, AxisMask mask, std::span<Out> y,
              double factor) {
  const Forms forms = make_forms(extents, mask);
  const Form& first = forms.form[0];
  if (forms.size == 1) return sum_form(x.data(), first, y.data(), factor);
  std::vector<double> current(static_cast<std::size_t>(first.outer * first.inner));
  sum_form(x.data(), first, current.data(), 1.0);
  for (int k = 1; k < forms.size; ++k) {
    const Form& form = forms.form[static_cast<std::size_t>(k)];
    if (k + 1 == forms.size) return sum_form(current.data(), form, y.data(), factor);
    std::vector<double> next(static_cast<std::size_t>(form.outer * form.inner));
    sum_form(current.data(), form, next.data(), 1.0);
    current = std::move(next);
  }
}

void check_reduction(const char* op, Extents extents, AxisMask mask, std::size_t in,
                     std::size_t out) {
  std::int64_t want_in = 1;
  std::int64_t want_out = 1;
  for (std::size_t axis = 0; axis < extents.size(); ++axis) {
    want_in *= extents[axis];
    if (((mask >> axis) & 1U) == 0) want_out *= extents[axis];
  }
  STEADY_CHECK(
      Error, static_cast<std::int64_t>(in) == want_in && static_cast<std::int64_t>(out) == want_out,
      "{}: the shape asks for {} elements in and {} out; got {} and {}", op, want_in, want_out, in,
      out);
}

/// The extents with 1 on the masked axes.
struct Kept {
  std::array<std::int64_t, MaxAxes> extent{};
  std::size_t rank;
  Kept(Extents extents, AxisMask mask) : rank(extents.size()) {
    for (std::size_t axis = 0; axis < rank; ++axis)
      extent[axis] = ((mask >> axis) & 1U) != 0 ? 1 : extents[axis];
  }
  [[nodiscard]] Extents extents() const { return {extent.data(), rank}; }
};

template <class T>
T larger(T a, T b) {
  if (a != a) return a;
  return b != b || b > a ? b : a;
}

template <class T>
void amax_form(const T* x, const Form& form, T* y) {
  const std::int64_t slice = form.count * form.inner;
  parallel_for(form.outer, rows_per_chunk(slice), [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t o = b; o < e; ++o) {
      T* best = y + o * form.inner;
      std::copy_n(x + o * slice, form.inner, best);
      for (std::int64_t r = 1; r < form.count; ++r) {
        const T* row = x + o * slice + r * form.inner;
        for (std::int64_t i = 0; i < form.inner; ++i) best[i] = larger(best[i], row[i]);
      }
    }
  });
}

}  // namespace

std::int64_t reduced_count(Extents extents, AxisMask mask) {
  std::int64_t count = 1;
  for (std::size_t axis = 0; axis < extents.size(); ++axis)
    if (((mask >> axis) & 1U) != 0) count *= extents[axis];
  return count;
}

Forms make_forms(Extents extents, AxisMask mask) {
  STEADY_CHECK(ShapeError, extents.size() <= MaxAxes && (mask >> extents.size()) == 0,
               "reduce: at most {} axes, and no mask bit beyond them; got {} axes, mask {:#x}",
               MaxAxes, extents.size(), mask);
  Forms forms;
  std::int64_t inner = 1;  // product of the kept axes passed so far
  for (std::size_t axis = extents.size(); axis > 0;) {
    if (((mask >> (axis - 1)) & 1U) == 0 || extents[axis - 1] == 1) {
      inner *= extents[--axis];
      continue;
    }
    Form form{.outer = 1, .count = 1, .inner = inner};
    while (axis > 0 && (((mask >> (axis - 1)) & 1U) != 0 || extents[axis - 1] == 1))
      form.count *= extents[--axis];
    for (std::size_t outer = 0; outer < axis; ++outer) form.outer *= extents[outer];
    forms.form[static_cast<std::size_t>(forms.size++)] = form;
  }
  if (forms.size == 0) forms.form[static_cast<std::size_t>(forms.size++)].inner = inner;
  return forms;
}

template <class T>
void sum(std::span<const T> x, Extents extents, AxisMask mask, std::span<T> y, double factor) {
  check_reduction("sum", extents, mask, x.size(), y.size());
  sum_into(x, extents, mask, y, factor);
}

template <class T>
void sum_in_double(std::span<const T> x, Extents extents, AxisMask mask, std::span<double> y,
                   double factor) {
  check_reduction("sum", extents, mask, x.size(), y.size());
  sum_into(x, extents, mask, y, factor);
}

template <class T>
void sum_to(std::span<const T> x, Extents from, std::span<T> y, Extents to) {
  STEADY_CHECK(ShapeError, to.size() <= from.size(),
               "sum_to: the target may not have more axes; got {} and {}", to.size(), from.size());
  const std::size_t missing = from.size() - to.size();
  AxisMask mask = 0;
  for (std::size_t axis = 0; axis < from.size(); ++axis) {
    const std::int64_t target = axis < missing ? 1 : to[axis - missing];
    if (target == from[axis]) continue;
    STEADY_CHECK(ShapeError, target == 1, "sum_to: axis {} of the target must be {} or 1; got {}",
                 axis, from[axis], target);
    mask |= AxisMask{1} << axis;
  }
  check_reduction("sum_to", from, mask, x.size(), y.size());
  sum_into(x, from, mask, y, 1.0);
}

template <class T>
void amax(std::span<const T> x, Extents extents, AxisMask mask, std::span<T> y) {
  check_reduction("amax", extents, mask, x.size(), y.size());
  STEADY_CHECK(Error, y.empty() || reduced_count(extents, mask) > 0,
               "amax: the reduced axes must hold an element");
  const Forms forms = make_forms(extents, mask);
  std::vector<T> current;
  const T* from = x.data();
  for (int k = 0; k < forms.size; ++k) {
    const Form& form = forms.form[static_cast<std::size_t>(k)];
    if (k + 1 == forms.size) return amax_form(from, form, y.data());
    std::vector<T> next(static_cast<std::size_t>(form.outer * form.inner));
    amax_form(from, form, next.data());
    current = std::move(next);
    from = current.data();
  }
}

template <class T>
void amax_weights(std::span<const T> x, Extents extents, AxisMask mask, std::span<const T> y,
                  std::span<T> w) {
  check_reduction("amax_weights", extents, mask, x.size(), y.size());
  STEADY_CHECK(Error, w.size() == x.size(),
               "amax_weights: w must have the size of x; got {} and {}", w.size(), x.size());
  const Kept kept(extents, mask);
  const Broadcast plan = make_broadcast({extents, kept.extents()}, "amax_weights");
  const std::int64_t step = plan.stride[1][static_cast<std::size_t>(plan.rank - 1)];
  for_each_row(plan, 0, plan.numel, [&](std::int64_t at, const auto& from, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const T value = x[static_cast<std::size_t>(at + i)];
      const T best = y[static_cast<std::size_t>(from[1] + i * step)];
      w[static_cast<std::size_t>(at + i)] =
          value == best || (value != value && best != best) ? 1 : 0;
    }
  });
  std::vector<double> ties(y.size());
  sum_into(std::span<const T>(w), extents, mask, std::span<double>(ties), 1.0);
  for_each_row(plan, 0, plan.numel, [&](std::int64_t at, const auto& from, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      T& weight = w[static_cast<std::size_t>(at + i)];
      weight = static_cast<T>(weight / ties[static_cast<std::size_t>(from[1] + i * step)]);
    }
  });
}

template <class T>
void argmax(std::span<const T> x, std::int64_t outer, std::int64_t count, std::int64_t inner,
            std::span<std::int64_t> index) {
  STEADY_CHECK(Error, count >= 1, "argmax: the axis must hold an element; got {}", count);
  STEADY_CHECK(Error, std::ssize(x) == outer * count * inner && std::ssize(index) == outer * inner,
               "argmax: x and index must fit [{}, {}, {}]; got {} and {} elements", outer, count,
               inner, x.size(), index.size());
  parallel_for(outer, rows_per_chunk(count * inner), [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t o = b; o < e; ++o) {
      for (std::int64_t i = 0; i < inner; ++i) {
        const T* p = x.data() + o * count * inner + i;
        std::int64_t best = 0;
        for (std::int64_t r = 1; r < count && p[best * inner] == p[best * inner]; ++r)
          if (!(p[r * inner] <= p[best * inner])) best = r;
        index[static_cast<std::size_t>(o * inner + i)] = best;
      }
    }
  });
}

template void sum(std::span<const float>, Extents, AxisMask, std::span<float>, double);
template void sum_in_double(std::span<const float>, Extents, AxisMask, std::span<double>, double);
template void sum_in_double(std::span<const double>, Extents, AxisMask, std::span<double>, double);
template void sum_to(std::span<const float>, Extents, std::span<float>, Extents);
template void amax(std::span<const float>, Extents, AxisMask, std::span<float>);
template void amax_weights(std::span<const float>, Extents, AxisMask, std::span<const float>,
                           std::span<float>);
template void argmax(std::span<const float>, std::int64_t, std::int64_t, std::int64_t,
                     std::span<std::int64_t>);
template void sum(std::span<const double>, Extents, AxisMask, std::span<double>, double);
template void sum_to(std::span<const double>, Extents, std::span<double>, Extents);
template void amax(std::span<const double>, Extents, AxisMask, std::span<double>);
template void amax_weights(std::span<const double>, Extents, AxisMask, std::span<const double>,
                           std::span<double>);
template void argmax(std::span<const double>, std::int64_t, std::int64_t, std::int64_t,
                     std::span<std::int64_t>);

}  // namespace steady::kernels
