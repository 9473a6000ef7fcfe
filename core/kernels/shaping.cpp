#include <algorithm>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/reduce_forms.hpp>
#include <steadygrad/core/kernels/shaping.hpp>
#include <steadygrad/core/parallel.hpp>

namespace steady::kernels {
namespace {

void check_slice(const char* op, const Slice& s, std::size_t whole, std::size_t part) {
  STEADY_CHECK(Error,
               s.step >= 1 && s.start >= 0 && s.count >= 0 &&
                   (s.count == 0 || s.start + (s.count - 1) * s.step < s.extent),
               "{}: elements must lie in the axis; got start {}, step {}, count {} of {}", op,
               s.start, s.step, s.count, s.extent);
  STEADY_CHECK(Error,
               static_cast<std::int64_t>(whole) == s.outer * s.extent * s.inner &&
                   static_cast<std::int64_t>(part) == s.outer * s.count * s.inner,
               "{}: buffers must fit [{}, {} of {}, {}]; got {} and {} elements", op, s.outer,
               s.count, s.extent, s.inner, whole, part);
}

void check_rows(const char* op, std::int64_t table_rows, std::int64_t width,
                std::span<const std::int64_t> index, std::size_t table, std::size_t rows) {
  STEADY_CHECK(Error,
               static_cast<std::int64_t>(table) == table_rows * width &&
                   static_cast<std::int64_t>(rows) == std::ssize(index) * width,
               "{}: buffers must fit a table [{}, {}] and {} indices; got {} and {} elements", op,
               table_rows, width, index.size(), table, rows);
  for (std::size_t m = 0; m < index.size(); ++m)
    STEADY_CHECK(Error, index[m] >= 0 && index[m] < table_rows,
                 "{}: an index must name a row of the table; got index[{}] = {} with {} rows", op,
                 m, index[m], table_rows);
}

}  // namespace

template <class T>
void copy_columns(std::span<const T> x, std::int64_t x_width, std::int64_t x_first, std::span<T> y,
                  std::int64_t y_width, std::int64_t y_first, std::int64_t rows,
                  std::int64_t width) {
  STEADY_CHECK(Error, std::ssize(x) == rows * x_width && std::ssize(y) == rows * y_width,
               "copy_columns: buffers must hold {} rows of {} and {}; got {} and {} elements", rows,
               x_width, y_width, x.size(), y.size());
  STEADY_CHECK(Error,
               width >= 0 && x_first >= 0 && y_first >= 0 && x_first + width <= x_width &&
                   y_first + width <= y_width,
               "copy_columns: columns must lie in the rows; got {} from {} of {} to {} of {}",
               width, x_first, x_width, y_first, y_width);
  parallel_for(rows, rows_per_chunk(width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      std::copy_n(x.data() + r * x_width + x_first, width, y.data() + r * y_width + y_first);
  });
}

template <class T>
void slice(std::span<const T> x, const Slice& s, std::span<T> y) {
  check_slice("slice", s, x.size(), y.size());
  if (s.count == 0) return;
  parallel_for(s.outer * s.count, rows_per_chunk(s.inner), [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t r = b; r < e; ++r) {
      const std::int64_t from = r / s.count * s.extent + s.start + r % s.count * s.step;
      std::copy_n(x.data() + from * s.inner, s.inner, y.data() + r * s.inner);
    }
  });
}

template <class T>
void slice_backward(std::span<const T> dy, const Slice& s, std::span<T> dx) {
  check_slice("slice_backward", s, dx.size(), dy.size());
  const std::int64_t width = s.extent * s.inner;
  parallel_for(s.outer, rows_per_chunk(width), [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t o = b; o < e; ++o) {
      T* to = dx.data() + o * width;
      std::fill_n(to, width, T{0});
      for (std::int64_t k = 0; k < s.count; ++k)
        std::copy_n(dy.data() + (o * s.count + k) * s.inner, s.inner,
                    to + (s.start + k * s.step) * s.inner);
    }
  });
}

template <class T>
void gather_rows(std::span<const T> table, std::int64_t table_rows, std::int64_t width,
                 std::span<const std::int64_t> index, std::span<T> y) {
  check_rows("gather_rows", table_rows, width, index, table.size(), y.size());
  parallel_for(std::ssize(index), rows_per_chunk(width), [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t m = b; m < e; ++m)
      std::copy_n(table.data() + index[static_cast<std::size_t>(m)] * width, width,
                  y.data() + m * width);
  });
}

template <class T>
void scatter_add_rows(std::span<const T> dy, std::int64_t table_rows, std::int64_t width,
                      std::span<const std::int64_t> index, std::span<T> table) {
  check_rows("scatter_add_rows", table_rows, width, index, table.size(), dy.size());
  // Columns are shared out, so that every element adds its rows in their order on one thread.
  const std::int64_t columns = std::max<std::int64_t>(64, rows_per_chunk(std::ssize(index)));
  parallel_for(width, columns, [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t m = 0; m < std::ssize(index); ++m) {
      T* to = table.data() + index[static_cast<std::size_t>(m)] * width;
      const T* from = dy.data() + m * width;
      for (std::int64_t j = b; j < e; ++j) to[j] += from[j];
    }
  });
}

template void copy_columns(std::span<const float>, std::int64_t, std::int64_t, std::span<float>,
                           std::int64_t, std::int64_t, std::int64_t, std::int64_t);
template void slice(std::span<const float>, const Slice&, std::span<float>);
template void slice_backward(std::span<const float>, const Slice&, std::span<float>);
template void gather_rows(std::span<const float>, std::int64_t, std::int64_t,
                          std::span<const std::int64_t>, std::span<float>);
template void scatter_add_rows(std::span<const float>, std::int64_t, std::int64_t,
                               std::span<const std::int64_t>, std::span<float>);
template void copy_columns(std::span<const double>, std::int64_t, std::int64_t, std::span<double>,
                           std::int64_t, std::int64_t, std::int64_t, std::int64_t);
template void slice(std::span<const double>, const Slice&, std::span<double>);
template void slice_backward(std::span<const double>, const Slice&, std::span<double>);
template void gather_rows(std::span<const double>, std::int64_t, std::int64_t,
                          std::span<const std::int64_t>, std::span<double>);
template void scatter_add_rows(std::span<const double>, std::int64_t, std::int64_t,
                               std::span<const std::int64_t>, std::span<double>);
template void copy_columns(std::span<const std::int32_t>, std::int64_t, std::int64_t,
                           std::span<std::int32_t>, std::int64_t, std::int64_t, std::int64_t,
                           std::int64_t);
template void slice(std::span<const std::int32_t>, const Slice&, std::span<std::int32_t>);
template void slice_backward(std::span<const std::int32_t>, const Slice&, std::span<std::int32_t>);
template void gather_rows(std::span<const std::int32_t>, std::int64_t, std::int64_t,
                          std::span<const std::int64_t>, std::span<std::int32_t>);
template void scatter_add_rows(std::span<const std::int32_t>, std::int64_t, std::int64_t,
                               std::span<const std::int64_t>, std::span<std::int32_t>);
template void copy_columns(std::span<const std::int64_t>, std::int64_t, std::int64_t,
                           std::span<std::int64_t>, std::int64_t, std::int64_t, std::int64_t,
                           std::int64_t);
template void slice(std::span<const std::int64_t>, const Slice&, std::span<std::int64_t>);
template void slice_backward(std::span<const std::int64_t>, const Slice&, std::span<std::int64_t>);
template void gather_rows(std::span<const std::int64_t>, std::int64_t, std::int64_t,
                          std::span<const std::int64_t>, std::span<std::int64_t>);
template void scatter_add_rows(std::span<const std::int64_t>, std::int64_t, std::int64_t,
                               std::span<const std::int64_t>, std::span<std::int64_t>);

}  // namespace steady::kernels
