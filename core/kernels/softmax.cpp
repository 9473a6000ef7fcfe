#include <algorithm>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/reduce_forms.hpp>
#include <steadygrad/core/kernels/softmax.hpp>
#include <steadygrad/core/kernels/softmax_rows.hpp>
#include <steadygrad/core/kernels/stream.hpp>
#include <steadygrad/core/parallel.hpp>

namespace steady::kernels {
namespace {

void check(const char* op, std::int64_t rows, std::int64_t width, std::size_t in, std::size_t out) {
  STEADY_CHECK(
      Error, rows >= 0 && width >= 0 && static_cast<std::int64_t>(in) == rows * width && in == out,
      "{}: in and out must hold [{}, {}]; got {} and {} elements", op, rows, width, in, out);
}

template <class T>
bool streams(std::int64_t arrays, std::int64_t rows, std::int64_t width, const T* out) {
  constexpr auto Size = static_cast<std::int64_t>(sizeof(T));
  return kernels::streams(arrays * rows * width * Size, out, width * Size);
}

/// run(first element, number of rows) for chunks of `chunk` rows.
template <class Rows>
void in_chunks(std::int64_t rows, std::int64_t width, std::int64_t chunk, Rows run) {
  if (width == 0) return;
  parallel_for(rows, chunk,
               [&](std::int64_t begin, std::int64_t end) { run(begin * width, end - begin); });
}

}  // namespace

template <class T>
void softmax(std::span<const T> x, std::int64_t rows, std::int64_t width, std::span<T> y) {
  check("softmax", rows, width, x.size(), y.size());
  const bool stream = streams<T>(2, rows, width, y.data());
  // A chunk's first and last rows are not read and written while others are computed: few chunks.
  const std::int64_t least = rows_per_chunk(width);
  const std::int64_t chunk = std::clamp<std::int64_t>(rows / 64, least, 4 * least);
  in_chunks(rows, width, chunk, [&](std::int64_t at, std::int64_t n) {
    softmax_rows(x.data() + at, n, width, y.data() + at, stream);
  });
}

template <class T>
void softmax_backward(std::span<const T> dy, std::span<const T> y, std::int64_t rows,
                      std::int64_t width, std::span<T> dx) {
  check("softmax_backward", rows, width, dy.size(), dx.size());
  check("softmax_backward", rows, width, y.size(), dx.size());
  const bool stream = streams<T>(3, rows, width, dx.data());
  in_chunks(rows, width, rows_per_chunk(width), [&](std::int64_t at, std::int64_t n) {
    softmax_backward_rows(dy.data() + at, y.data() + at, n, width, dx.data() + at, stream);
  });
}

template <class T>
void log_softmax(std::span<const T> x, std::int64_t rows, std::int64_t width, std::span<T> y) {
  check("log_softmax", rows, width, x.size(), y.size());
  in_chunks(rows, width, rows_per_chunk(width), [&](std::int64_t at, std::int64_t n) {
    log_softmax_rows(x.data() + at, n, width, y.data() + at);
  });
}

template <class T>
void log_softmax_backward(std::span<const T> dy, std::span<const T> y, std::int64_t rows,
                          std::int64_t width, std::span<T> dx) {
  check("log_softmax_backward", rows, width, dy.size(), dx.size());
  check("log_softmax_backward", rows, width, y.size(), dx.size());
  in_chunks(rows, width, rows_per_chunk(width), [&](std::int64_t at, std::int64_t n) {
    log_softmax_backward_rows(dy.data() + at, y.data() + at, n, width, dx.data() + at);
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
