// Sums over the columns of a few dozen lines, and what adds them to sums in double; read once per
// SIMD target, like simd-inl.hpp.
//
// Lines are read in groups, in the order of memory; the sums of each column stay in the first
// cache, which they pass once for a group. Every column adds its lines in their order.

#if defined(STEADY_LAYERS_NORM_COLUMN_GROUPS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef STEADY_LAYERS_NORM_COLUMN_GROUPS_INL_HPP
#undef STEADY_LAYERS_NORM_COLUMN_GROUPS_INL_HPP
#else
#define STEADY_LAYERS_NORM_COLUMN_GROUPS_INL_HPP
#endif

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstdint>
#include <steadygrad/core/kernels/simd-inl.hpp>
#include <steadygrad/layers/norm/column_lines_kernel.hpp>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {

/// The mean of so many lines, at most, is the first pivot.
constexpr std::int64_t PivotLines = 16;

constexpr int GroupLines = 4;
/// Columns whose sums are kept at a time.
constexpr std::int64_t GroupColumns = 512;
/// n lines of a buffer, `stride` elements apart.
struct Lines {
  std::int64_t stride, n, columns;

  /// How many elements ahead of its use a line is fetched: the next group, or so far in wide lines.
  [[nodiscard]] std::int64_t ahead() const {
    return std::min<std::int64_t>(GroupLines * stride, 512);
  }
};

/// Calls body(line, integral_constant lines, whether they are the first) for groups of lines.
template <class Body>
HWY_INLINE void for_groups(std::int64_t lines, Body&& body) {
  using Group = std::integral_constant<int, GroupLines>;
  using One = std::integral_constant<int, 1>;
  std::int64_t line = 0;
  if (lines >= Group()) {
    body(line, Group{}, std::true_type{});
    for (line = Group(); line + Group() <= lines; line += Group()) {
      body(line, Group{}, std::false_type{});
    }
  } else if (lines > 0) {
    body(line++, One{}, std::true_type{});
  }
  for (; line < lines; ++line) body(line, One{}, std::false_type{});
}

/// Calls body(column, integral_constant vectors, part) for two vectors at a time, then one.
template <class T, class Body>
HWY_INLINE void for_pairs(std::int64_t columns, Body&& body) {
  using Two = std::integral_constant<int, 2>;
  using One = std::integral_constant<int, 1>;
  const std::int64_t step = lanes<T>();
  std::int64_t j = 0;
  for (; j + 2 * step <= columns; j += 2 * step) body(j, Two{}, Whole{});
  if (j + step <= columns) {
    body(j, One{}, Whole{});
    j += step;
  }
  if (j < columns) body(j, One{}, Part{columns - j});
}

/// Sums of a column's lines in T, padded to whole vectors.
template <class T>
struct alignas(64) GroupSums {
  T at[GroupColumns];
};

/// kVectors vectors, or zeros.
template <bool kZero, int kVectors, class T>
HWY_INLINE void take(const T* p, Vec<T>* v) {
  for (int k = 0; k < kVectors; ++k) {
    v[k] = kZero ? fill(T(0)) : load(p + k * lanes<T>(), Whole{});
  }
}
template <int kVectors, class T>
HWY_INLINE void give(const Vec<T>* v, T* p) {
  for (int k = 0; k < kVectors; ++k) store(v[k], p + k * lanes<T>(), Whole{});
}

HWY_INLINE Vec<double> widened(const float* p) {
  return hn::PromoteTo(Tag<double>(), hn::LoadU(hn::Rebind<float, Tag<double>>(), p));
}
HWY_INLINE Vec<double> widened(const double* p) { return load(p, Whole{}); }
HWY_INLINE void narrow(Vec<double> v, float* p) {
  const hn::Rebind<float, Tag<double>> d;
  hn::StoreU(hn::DemoteTo(d, v), d, p);
}
HWY_INLINE void narrow(Vec<double> v, double* p) { store(v, p, Whole{}); }

/// total += sums, of `columns` columns.
template <class T>
HWY_INLINE void add_sums(std::int64_t columns, const T* sums, double* total) {
  for_pairs<double>(columns, [&](std::int64_t j, auto vectors, auto part) HWY_ATTR {
    for (int v = 0; v < vectors(); ++v) {
      const std::int64_t i = j + v * lanes<double>();
      store(hn::Add(load(total + i, part), widened(sums + i)), total + i, part);
    }
  });
}

/// The moments of n lines, from their sums of x - pivot and of its square, merged into those of
/// `before` lines [Chan, Golub & LeVeque 1983].
template <class T>
HWY_INLINE void merge_lines(std::int64_t columns, std::int64_t n, std::int64_t before,
                            const T* pivots, const T* sums, const T* squares, double* mean,
                            double* m2) {
  const auto count = static_cast<double>(n);
  const double portion = count / static_cast<double>(n + before);
  const Vec<double> inverse = fill(1.0 / count), share = fill(portion);
  const Vec<double> weight = fill(static_cast<double>(before) * portion);
  for_pairs<double>(columns, [&](std::int64_t j, auto vectors, auto part) HWY_ATTR {
    for (int v = 0; v < vectors(); ++v) {
      const std::int64_t i = j + v * lanes<double>();
      const Vec<double> sum = widened(sums + i), low = hn::Mul(sum, inverse);
      const Vec<double> part_mean = hn::Add(widened(pivots + i), low);
      const Vec<double> part_m2 = fnma(sum, low, widened(squares + i));
      if (before == 0) {
        store(part_mean, mean + i, part);
        store(part_m2, m2 + i, part);
        continue;
      }
      const Vec<double> old = load(mean + i, part), d = hn::Sub(part_mean, old);
      const Vec<double> between = fma(hn::Mul(d, d), weight, part_m2);
      store(fma(d, share, old), mean + i, part);
      store(hn::Add(load(m2 + i, part), between), m2 + i, part);
    }
  });
}

/// Pivots of columns whose mean is known; 0 in the rest of the last vector.
template <class T>
HWY_INLINE void narrow_means(std::int64_t columns, const double* mean, T* pivots) {
  const std::int64_t rest = columns % lanes<T>();
  if (rest != 0) store(fill(T(0)), pivots + columns - rest, Whole{});
  for_pairs<double>(columns, [&](std::int64_t j, auto vectors, auto part) HWY_ATTR {
    for (int v = 0; v < vectors(); ++v) {
      const std::int64_t i = j + v * lanes<double>();
      narrow(load(mean + i, part), pivots + i);
    }
  });
}

/// The pivots of a block that begins a buffer: means of its first lines.
template <class T>
HWY_INLINE void first_pivots(const T* x, const Lines& g, T* pivots) {
  const std::int64_t first = std::min(PivotLines, g.n);
  for_groups(first, [&](std::int64_t line, auto group, auto begins) HWY_ATTR {
    const T* row = x + line * g.stride;
    for_pairs<T>(g.columns, [&](std::int64_t j, auto vectors, auto part) HWY_ATTR {
      Vec<T> c[vectors()];
      take<begins(), vectors()>(pivots + j, c);
      for (int l = 0; l < group(); ++l) {
        for (int v = 0; v < vectors(); ++v) {
          c[v] = hn::Add(c[v], load(row + l * g.stride + j + v * lanes<T>(), part));
        }
      }
      give<vectors()>(c, pivots + j);
    });
  });
  const Vec<T> share = fill(T(1) / static_cast<T>(first));
  for_pairs<T>(g.columns, [&](std::int64_t j, auto vectors, auto) HWY_ATTR {
    for (int v = 0; v < vectors(); ++v) {
      const std::int64_t i = j + v * lanes<T>();
      store(hn::Mul(load(pivots + i, Whole{}), share), pivots + i, Whole{});
    }
  });
}

/// Merges the moments of a block of at most GroupColumns columns into those of the `before` lines
/// before it.
template <class T>
HWY_INLINE void group_moments(const T* x, const Lines& g, std::int64_t before, double* mean,
                              double* m2) {
  GroupSums<T> pivots, sums, squares;
  if (before == 0) {
    first_pivots(x, g, pivots.at);
  } else {
    narrow_means(g.columns, mean, pivots.at);
  }
  const std::int64_t ahead = g.ahead();
  for_groups(g.n, [&](std::int64_t line, auto group, auto begins) HWY_ATTR {
    const T* row = x + line * g.stride;
    for_pairs<T>(g.columns, [&](std::int64_t j, auto vectors, auto part) HWY_ATTR {
      constexpr int Vectors = vectors();
      Vec<T> pivot[Vectors], c[Vectors], q[Vectors];
      take<false, Vectors>(pivots.at + j, pivot);
      take<begins(), Vectors>(sums.at + j, c);
      take<begins(), Vectors>(squares.at + j, q);
      for (int l = 0; l < group(); ++l) {
        const T* p = row + l * g.stride + j;
        hwy::Prefetch(p + ahead);
        for (int v = 0; v < Vectors; ++v) {
          // -(x - pivot): x is then the operand that an instruction takes from memory.
          const Vec<T> d = hn::Sub(pivot[v], load(p + v * lanes<T>(), part));
          c[v] = hn::Sub(c[v], d);
          q[v] = fma(d, d, q[v]);
        }
      }
      give<Vectors>(c, sums.at + j);
      give<Vectors>(q, squares.at + j);
    });
  });
  merge_lines(g.columns, g.n, before, pivots.at, sums.at, squares.at, mean, m2);
}

/// Adds the sums of dy, and of dy * (x - pivot), of a block of at most GroupColumns columns.
template <bool kGate, class T>
HWY_INLINE void group_sums(const T* x, const T* dy, const T* pivots,
                           const detail::GateLines<T>& gate, const Lines& g, double* s1,
                           double* s2) {
  GroupSums<T> first, second;
  const std::int64_t ahead = g.ahead();
  for_groups(g.n, [&](std::int64_t line, auto group, auto begins) HWY_ATTR {
    const T *x_row = x + line * g.stride, *dy_row = dy + line * g.stride;
    for_pairs<T>(g.columns, [&](std::int64_t j, auto vectors, auto part) HWY_ATTR {
      constexpr int Vectors = vectors();
      Vec<T> pivot[Vectors], a[Vectors], b[Vectors], scale[Vectors], shift[Vectors];
      for (int v = 0; v < Vectors; ++v) {
        const std::int64_t i = j + v * lanes<T>();
        pivot[v] = load(pivots + i, part);
        scale[v] = kGate ? load(gate.scale + i, part) : pivot[v];
        shift[v] = kGate ? load(gate.shift + i, part) : pivot[v];
      }
      take<begins(), Vectors>(first.at + j, a);
      take<begins(), Vectors>(second.at + j, b);
      for (int l = 0; l < group(); ++l) {
        const T *p = x_row + l * g.stride + j, *u_p = dy_row + l * g.stride + j;
        hwy::Prefetch(p + ahead);
        hwy::Prefetch(u_p + ahead);
        for (int v = 0; v < Vectors; ++v) {
          const Vec<T> d = hn::Sub(pivot[v], load(p + v * lanes<T>(), part));  // as above
          Vec<T> u = load(u_p + v * lanes<T>(), part);
          if constexpr (kGate) u = gated(u, fnma(d, scale[v], shift[v]));
          a[v] = hn::Add(a[v], u);
          b[v] = fnma(u, d, b[v]);
        }
      }
      give<Vectors>(a, first.at + j);
      give<Vectors>(b, second.at + j);
    });
  });
  add_sums(g.columns, first.at, s1);
  add_sums(g.columns, second.at, s2);
}

}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#endif
