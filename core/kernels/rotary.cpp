#include <steadygrad/core/kernels/rotary.hpp>

#include <algorithm>
#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/reduce_forms.hpp>
#include <steadygrad/core/parallel.hpp>
#include <vector>

namespace steady::kernels {
namespace {

/// cos and sin of every position and pair, [tokens, dims / 2]. A model asks for the same ones for
/// the queries and the keys of each layer, so a thread keeps its last table.
template <class T>
struct Table {
  double theta = 0;
  std::int64_t dims = 0;
  std::int64_t offset = 0;
  std::int64_t tokens = 0;
  std::vector<T> cosine{};
  std::vector<T> sine{};
};

template <class T>
const Table<T>& table_for(const Rotary& r) {
  thread_local Table<T> table;
  if (table.theta == r.theta && table.dims == r.dims && table.offset == r.offset &&
      table.tokens >= r.tokens) {
    return table;
  }
  const std::int64_t pairs = r.dims / 2;
  table.theta = 0;  // not a table while it is being filled
  table.cosine.resize(static_cast<std::size_t>(r.tokens * pairs));
  table.sine.resize(static_cast<std::size_t>(r.tokens * pairs));
  for (std::int64_t i = 0; i < pairs; ++i) {
    const double frequency =
        std::pow(r.theta, -2.0 * static_cast<double>(i) / static_cast<double>(r.dims));
    for (std::int64_t t = 0; t < r.tokens; ++t) {
      const double angle = static_cast<double>(r.offset + t) * frequency;
      const auto at = static_cast<std::size_t>(t * pairs + i);
      table.cosine[at] = static_cast<T>(std::cos(angle));
      table.sine[at] = static_cast<T>(std::sin(angle));
    }
  }
  table.dims = r.dims;
  table.offset = r.offset;
  table.tokens = r.tokens;
  table.theta = r.theta;
  return table;
}

/// One head: x, y: [dims].
template <class T>
void rotate_halves(const T* x, const T* c, const T* s, T sign, std::int64_t pairs, T* y) {
  for (std::int64_t i = 0; i < pairs; ++i) {
    const T a = x[i];
    const T b = x[pairs + i];
    y[i] = a * c[i] - b * (sign * s[i]);
    y[pairs + i] = b * c[i] + a * (sign * s[i]);
  }
}

template <class T>
void rotate_neighbours(const T* x, const T* c, const T* s, T sign, std::int64_t pairs, T* y) {
  for (std::int64_t i = 0; i < pairs; ++i) {
    const T a = x[2 * i];
    const T b = x[2 * i + 1];
    y[2 * i] = a * c[i] - b * (sign * s[i]);
    y[2 * i + 1] = b * c[i] + a * (sign * s[i]);
  }
}

}  // namespace

template <class T>
void rotary(const Rotary& r, std::span<const T> x, std::span<T> y) {
  STEADY_CHECK(Error,
               r.dims >= 0 && r.dims % 2 == 0 && r.dims <= r.width && x.size() == y.size() &&
                   std::ssize(x) == r.batch * r.tokens * r.heads * r.width,
               "rotary: needs even dims <= width and buffers of [{}, {}, {}, {}]; got dims {}, {} "
               "and {} elements",
               r.batch, r.tokens, r.heads, r.width, r.dims, x.size(), y.size());
  if (x.empty()) return;
  const Table<T>& table = table_for<T>(r);
  const std::int64_t pairs = r.dims / 2;
  const T sign = r.inverse ? T{-1} : T{1};
  const auto rotate = r.interleaved ? rotate_neighbours<T> : rotate_halves<T>;
  parallel_for(r.batch * r.tokens, rows_per_chunk(r.heads * r.width),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row) {
                   const T* c = table.cosine.data() + row % r.tokens * pairs;
                   const T* s = table.sine.data() + row % r.tokens * pairs;
                   for (std::int64_t h = 0; h < r.heads; ++h) {
                     const std::int64_t at = (row * r.heads + h) * r.width;
                     rotate(x.data() + at, c, s, sign, pairs, y.data() + at);
                     std::copy_n(x.data() + at + r.dims, r.width - r.dims, y.data() + at + r.dims);
                   }
                 }
               });
}

template void rotary(const Rotary&, std::span<const float>, std::span<float>);
template void rotary(const Rotary&, std::span<const double>, std::span<double>);

}  // namespace steady::kernels
