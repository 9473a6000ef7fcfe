// How the row kernels (layer, RMS) walk a row; read once per SIMD target, like simd-inl.hpp.

#if defined(STEADY_LAYERS_NORM_ROW_WALK_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef STEADY_LAYERS_NORM_ROW_WALK_INL_HPP
#undef STEADY_LAYERS_NORM_ROW_WALK_INL_HPP
#else
#define STEADY_LAYERS_NORM_ROW_WALK_INL_HPP
#endif

#include <algorithm>
#include <cstdint>
#include <steadygrad/core/kernels/rows-inl.hpp>
#include <steadygrad/core/kernels/stream-inl.hpp>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {

/// Elements of a row that are summed in T, at most 32 terms per lane and partial sum; sums of such
/// sums are double. So the error of a statistic does not grow with the width, and one large element
/// does not swallow many small ones. Also no more than lets the first cache hold such a piece of
/// every array that a backward touches.
template <class T>
HWY_INLINE std::int64_t sum_block() {
  return std::min<std::int64_t>(32 * 4 * lanes<T>(), 1024);
}

/// The elements [i, i + n) of a row; `at` is i modulo the period of the gains.
struct Piece {
  std::int64_t i, at, n;
};

/// Calls body(Piece), or body(i, at, n), for the pieces of a row. The cut depends on width and
/// period alone, so that every row is summed in the same order wherever in a task it lies.
template <class T, class Body>
HWY_INLINE void for_pieces(std::int64_t width, std::int64_t period, Body&& body) {
  const std::int64_t block = sum_block<T>();
  for (std::int64_t base = 0; base < width; base += period) {
    const std::int64_t length = std::min(period, width - base);
    for (std::int64_t at = 0; at < length; at += block) {
      const std::int64_t n = std::min(block, length - at);
      if constexpr (std::is_invocable_v<Body, Piece>) {
        body(Piece{base + at, at, n});
      } else {
        body(base + at, at, n);
      }
    }
  }
}

/// Rows that a kernel takes at once where it touches `elements` of each: as many short ones as
/// rows_together. Rows of several pieces take turns piece by piece, so that the gains of a piece,
/// and the sums of their gradients, stay in the first cache while the second holds the rows.
template <class T>
HWY_INLINE std::int64_t rows_in_turn(std::int64_t width, std::int64_t elements) {
  constexpr std::int64_t Bytes = 262144, Most = 8;
  if (width <= sum_block<T>()) return rows_together<T>(elements);
  return std::clamp<std::int64_t>(Bytes / (elements * static_cast<std::int64_t>(sizeof(T))), 1,
                                  Most);
}

/// Where in the gains row r begins: they repeat after `cycle` rows.
template <class Work>
HWY_INLINE std::int64_t first_gain(const Work& a, std::int64_t r) {
  return a.cycle == 1 ? 0 : r % a.cycle * a.width;
}

/// From an element of piece `p` of row `k` of `rows` in turn to what is fetched meanwhile: the
/// piece whose turn is next, or where a row is one piece, what follows in memory.
HWY_INLINE std::int64_t ahead_of(Piece p, std::int64_t k, std::int64_t rows, std::int64_t width) {
  if (p.n == width) return Ahead;
  if (k + 1 < rows) return width;
  return p.i + p.n < width ? p.n - k * width : width - p.i;
}

}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#endif
