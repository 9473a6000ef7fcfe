// How the row kernels (layer, RMS) walk a row; read once per SIMD target, like simd-inl.hpp.

#if defined(STEADY_LAYERS_NORM_ROW_WALK_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef STEADY_LAYERS_NORM_ROW_WALK_INL_HPP
#undef STEADY_LAYERS_NORM_ROW_WALK_INL_HPP
#else
#define STEADY_LAYERS_NORM_ROW_WALK_INL_HPP
#endif

#include <algorithm>
#include <cstdint>
#include <steadygrad/core/kernels/stream-inl.hpp>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {

/// Terms that a lane adds in T; sums of such sums are double. So the error of a statistic does not
/// grow with the width, and one large element does not swallow many small ones.
constexpr std::int64_t LaneTerms = 32;

/// Elements that so many vectors of sums may add in T.
template <class T>
HWY_INLINE std::int64_t summed_by(int vectors) {
  return LaneTerms * vectors * lanes<T>();
}

/// Elements of a row that are summed in T, by four vectors. Also no more than lets the first cache
/// hold such a piece of every array that a backward touches.
template <class T>
HWY_INLINE std::int64_t sum_block() {
  return std::min<std::int64_t>(summed_by<T>(4), 1024);
}

/// The elements [i, i + n) of a row; `at` is i modulo the period of the gains.
struct Piece {
  std::int64_t i, at, n;
};

/// Calls body(Piece), or body(i, at, n), for the pieces of a row, of `block` elements at most. The
/// cut does not depend on the row, so that every row is summed in the same order wherever in a task
/// it lies.
template <class Body>
HWY_INLINE void for_pieces(std::int64_t width, std::int64_t period, std::int64_t block,
                           Body&& body) {
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
template <class T, class Body>
HWY_INLINE void for_pieces(std::int64_t width, std::int64_t period, Body&& body) {
  for_pieces(width, period, sum_block<T>(), body);
}

/// Where in the gains row r begins: they repeat after `cycle` rows.
template <class Work>
HWY_INLINE std::int64_t first_gain(const Work& a, std::int64_t r) {
  return a.cycle == 1 ? 0 : r % a.cycle * a.width;
}

// A norm must have summed a row before it can write it, and should read memory once, while it
// writes. Short rows, of which the first cache holds a few: a row is summed in the loop that writes
// one before it. Wide rows, a few at a time: first they are summed, one after the other in a
// forward, a few at once in a backward, which then has one access to the sums of the parameter
// gradients for all of them; then they are written while the second cache holds them, in pieces so
// small that the first one keeps the gains from row to row.

/// Whether a row is a single piece.
template <class T>
HWY_INLINE bool is_short(std::int64_t width, std::int64_t period) {
  return width <= sum_block<T>() && width <= period;
}

constexpr std::int64_t ShortSlots = 16;

/// With a walk of ShortSlots slots
///   walk.sum(r, slot)                      sums row r
///   walk.finish(r, slot)                   makes of its sums what is needed to write it
///   walk.write(r, slot, next, next_slot)   writes row r and sums row `next`
/// for all rows in [begin, end); for the last ones `next` is r, and the sums are not used.
/// `elements`: what is read of a row. Very short ones are summed some rows ahead: the sums over
/// lanes, divisions and roots at the end of a row take longer than it.
template <class T, class Walk>
HWY_INLINE void walk_short(std::int64_t begin, std::int64_t end, std::int64_t elements,
                           Walk& walk) {
  constexpr std::int64_t Bytes = 4096, Most = ShortSlots / 2, Size = sizeof(T);
  static_assert((ShortSlots & (ShortSlots - 1)) == 0);
  const std::int64_t lag = std::clamp<std::int64_t>(Bytes / (elements * Size), 1, Most);
  const auto slot = [](std::int64_t r) { return r & (ShortSlots - 1); };
  for (std::int64_t r = begin; r < std::min(begin + lag, end); ++r) walk.sum(r, slot(r));
  for (std::int64_t r = begin; r < end; ++r) {
    walk.finish(r, slot(r));
    walk.write(r, slot(r), r + lag < end ? r + lag : r, slot(r + lag));
  }
}

/// Slots of a walk over wide rows, and how many of them a backward sums at once: as many as the
/// registers hold constants and sums of.
constexpr int WideForwardRows = 8, WideBackwardRows = 4;
constexpr int WideTogether = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

/// Elements of a wide row that are written before the same ones of the next row: measured.
template <class T>
constexpr std::int64_t WideForwardPiece = 2048 / sizeof(T);
template <class T>
constexpr std::int64_t WideBackwardPiece = 512 / sizeof(T);

/// How far ahead of its use a row that comes from memory is fetched while a forward sums it. Where
/// several rows are summed at once, the processor does that better by itself.
constexpr std::int64_t WideAhead = 2 * Ahead;

/// How walk_wide cuts rows: `elements` are read of a row; they are summed and written in pieces of
/// so many elements at most; `alike` unless they differ in their gains.
struct WideCut {
  std::int64_t width, period, elements, sum_piece, write_piece;
  bool alike = true;
};

/// With a walk of Walk::Slots slots
///   walk.sum<rows>(r, slot, p)   sums a piece of `rows` rows, 1 or Walk::Together, from r on
///   walk.finish(r, slot)         makes of its sums what is needed to write row r, clears them
///   walk.write(r, slot, p)       writes a piece of row r
/// for all rows in [begin, end), as many at a time as there are slots and the second cache holds.
template <class T, class Walk>
HWY_INLINE void walk_wide(std::int64_t begin, std::int64_t end, const WideCut& cut, Walk& walk) {
  constexpr std::int64_t Bytes = 262144, Size = sizeof(T), Slots = Walk::Slots;
  constexpr int Together = Walk::Together;
  const std::int64_t step = std::clamp<std::int64_t>(Bytes / (cut.elements * Size), 1, Slots);
  for (std::int64_t first = begin; first < end; first += step) {
    const std::int64_t rows = std::min(step, end - first);
    for (std::int64_t k = 0; k < rows;) {
      const bool together = cut.alike && k + Together <= rows;
      for_pieces(cut.width, cut.period, cut.sum_piece, [&](Piece p) HWY_ATTR {
        if (together) return walk.template sum<Together>(first + k, k, p);
        walk.template sum<1>(first + k, k, p);
      });
      k += together ? Together : 1;
    }
    for (std::int64_t k = 0; k < rows; ++k) walk.finish(first + k, k);
    for_pieces(cut.width, cut.period, cut.write_piece, [&](Piece p) HWY_ATTR {
      for (std::int64_t k = 0; k < rows; ++k) walk.write(first + k, k, p);
    });
  }
}

/// Calls body(j, part) for the vectors of [0, n), one at a time.
template <class T, class Body>
HWY_INLINE void for_each_vector(std::int64_t n, Body&& body) {
  const std::int64_t step = lanes<T>();
  std::int64_t j = 0;
  for (; j + step <= n; j += step) body(j, Whole{});
  if (j < n) body(j, Part{n - j});
}

template <class T>
HWY_INLINE double sum_of_lanes(Vec<T> v) {
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(Tag<T>(), v)));
}

/// The sum of kRows = 1, 2 or 4 vectors whose odd ones hold the sum of a pair already.
template <class T, int kRows>
HWY_INLINE Vec<T> sum_of_rows(const Vec<T>* rows) {
  if constexpr (kRows == 4) {
    return hn::Add(rows[1], rows[3]);
  } else {
    return rows[kRows - 1];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#endif
