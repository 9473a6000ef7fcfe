#include <algorithm>
#include <cmath>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/reduce_forms.hpp>
#include <steadygrad/core/kernels/softmax.hpp>
#include <steadygrad/core/kernels/softmax_rows.hpp>
#include <steadygrad/core/parallel.hpp>

namespace steady::kernels {
namespace {

void check(const char* op, std::int64_t rows, std::int64_t width, std::size_t in, std::size_t out) {
  STEADY_CHECK(
      Error, rows >= 0 && width >= 0 && static_cast<std::int64_t>(in) == rows * width && in == out,
      "{}: in and out must hold [{}, {}]; got {} and {} elements", op, rows, width, in, out);
}

template <class Row>
void for_rows(std::int64_t rows, std::int64_t width, Row row) {
  if (width == 0) return;
  parallel_for(rows, rows_per_chunk(width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) row(r * width);
  });
}

}  // namespace

template <class T>
void softmax(std::span<const T> x, std::int64_t rows, std::int64_t width, std::span<T> y) {
  check("softmax", rows, width, x.size(), y.size());
  for_rows(rows, width, [&](std::int64_t at) {
    const T* in = x.data() + at;
    const T shift = row_max(in, width);
    const double total = row_exp(in, width, shift, y.data() + at);
    row_scale(y.data() + at, width, static_cast<T>(1 / total));
  });
}

template <class T>
void softmax_backward(std::span<const T> dy, std::span<const T> y, std::int64_t rows,
                      std::int64_t width, std::span<T> dx) {
  check("softmax_backward", rows, width, dy.size(), dx.size());
  check("softmax_backward", rows, width, y.size(), dx.size());
  for_rows(rows, width, [&](std::int64_t at) {
    const T* g = dy.data() + at;
    const T* p = y.data() + at;
    row_softmax_backward(g, p, width, static_cast<T>(row_dot(g, p, width)), dx.data() + at);
  });
}

template <class T>
void log_softmax(std::span<const T> x, std::int64_t rows, std::int64_t width, std::span<T> y) {
  check("log_softmax", rows, width, x.size(), y.size());
  for_rows(rows, width, [&](std::int64_t at) {
    const T* in = x.data() + at;
    const T shift = row_max(in, width);
    const T log_total = static_cast<T>(std::log(row_exp_sum(in, width, shift)));
    T* out = y.data() + at;
    for (std::int64_t j = 0; j < width; ++j) out[j] = (in[j] - shift) - log_total;
  });
}

template <class T>
void log_softmax_backward(std::span<const T> dy, std::span<const T> y, std::int64_t rows,
                          std::int64_t width, std::span<T> dx) {
  check("log_softmax_backward", rows, width, dy.size(), dx.size());
  check("log_softmax_backward", rows, width, y.size(), dx.size());
  for_rows(rows, width, [&](std::int64_t at) {
    const T* g = dy.data() + at;
    row_log_softmax_backward(g, y.data() + at, width, static_cast<T>(row_sum(g, width)),
                             dx.data() + at);
  });
}

template void softmax(std::span<const float>, std::int64_t, std::int64_t, std::span<float>);
template void softmax_backward(std::span<const float>, std::span<const float>, std::int64_t,
                               std::int64_t, std::span<float>);
template void log_softmax(std::span<const float>, std::int64_t, std::int64_t, std::span<float>);
template void log_softmax_backward(std::span<const float>, std::span<const float>, std::int64_t,
                                   std::int64_t, std::span<float>);
template void softmax(std::span<const double>, std::int64_t, std::int64_t, std::span<double>);
template void softmax_backward(std::span<const double>, std::span<const double>, std::int64_t,
                               std::int64_t, std::span<double>);
template void log_softmax(std::span<const double>, std::int64_t, std::int64_t, std::span<double>);
template void log_softmax_backward(std::span<const double>, std::span<const double>, std::int64_t,
                                   std::int64_t, std::span<double>);

}  // namespace steady::kernels
