#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <steadygrad/core/kernels/reduce.hpp>
#include <steadygrad/core/parallel.hpp>
#include <vector>

namespace steady::kernels {

/// A reduction of the middle axis of [outer, count, inner].
struct Form {
  std::int64_t outer = 1;
  std::int64_t count = 1;
  std::int64_t inner = 1;
};

/// The reductions, innermost first, that one after the other reduce the masked axes; the tensor
/// shrinks between them. Neighbouring masked axes are one; usually there is one form in all.
struct Forms {
  std::array<Form, MaxAxes> form{};
  int size = 0;
};

/// Throws ShapeError for more than MaxAxes axes or a mask bit beyond them.
[[nodiscard]] Forms make_forms(Extents extents, AxisMask mask);

/// sum of reduce.hpp with the result in double.
template <class T>
void sum_in_double(std::span<const T> x, Extents extents, AxisMask mask, std::span<double> y,
                   double factor);

/// Rows of `width` elements that make a chunk of about 32K elements.
[[nodiscard]] constexpr std::int64_t rows_per_chunk(std::int64_t width) {
  return std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(width, 1));
}

/// y[o, i] = factor * (what `add` accumulates over the rows r of slice o in column i).
/// add(o, first row, rows, first column, columns, acc) adds to acc[0 .. columns). Rows are cut
/// where `inner` is small and columns where it is large, by the shape alone; row chunks are merged
/// in their order.
template <class Out, class Add>
void reduce_in_chunks(const Form& form, double factor, Out* y, Add&& add) {
  constexpr std::int64_t Tile = 256;
  const std::int64_t tiles = (form.inner + Tile - 1) / Tile;
  const std::int64_t rows =
      form.inner >= 4096 ? form.count : std::max<std::int64_t>(64, rows_per_chunk(form.inner));
  const std::int64_t chunks =
      std::max<std::int64_t>(1, form.count <= rows ? 1 : (form.count + rows - 1) / rows);
  std::vector<double> partial;
  if (chunks > 1) partial.resize(static_cast<std::size_t>(form.outer * chunks * form.inner));

  const std::int64_t work = std::min(rows, form.count) * std::min(form.inner, Tile);
  parallel_for(
      form.outer * chunks * tiles, rows_per_chunk(work), [&](std::int64_t b, std::int64_t e) {
        for (std::int64_t task = b; task < e; ++task) {
          const std::int64_t column = task % tiles * Tile;
          const std::int64_t chunk = task / tiles % chunks;
          const std::int64_t o = task / tiles / chunks;
          const std::int64_t columns = std::min(Tile, form.inner - column);
          double acc[Tile] = {};
          add(o, chunk * rows, std::min(rows, form.count - chunk * rows), column, columns, acc);
          if (chunks > 1) {
            std::copy_n(acc, columns, partial.data() + (o * chunks + chunk) * form.inner + column);
          } else {
            for (std::int64_t i = 0; i < columns; ++i)
              y[o * form.inner + column + i] = static_cast<Out>(factor * acc[i]);
          }
        }
      });
  if (chunks == 1) return;
  parallel_for(form.outer * form.inner, 4096, [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t k = b; k < e; ++k) {
      const double* p = partial.data() + k / form.inner * chunks * form.inner + k % form.inner;
      double total = 0;
      for (std::int64_t c = 0; c < chunks; ++c) total += p[c * form.inner];
      y[k] = static_cast<Out>(factor * total);
    }
  });
}

}  // namespace steady::kernels
