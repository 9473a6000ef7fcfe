#pragma once

#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <steadygrad/core/kernels/stream.hpp>

namespace steady {

/// How a contiguous buffer is cut for a normalization over rows: `rows` sets of `width` consecutive
/// elements share a statistic each, and element i of a set uses gain and shift number i % affine.
/// LayerNorm over the last axis: {rows, D, D}. Over the trailing axes H, W, C with a gain for each
/// element: {rows, H*W*C, H*W*C}; with a gain per channel only: {N, H*W*C, C}.
struct RowShape {
  std::int64_t rows = 0;
  std::int64_t width = 1;
  std::int64_t affine = 1;  ///< divides width

  [[nodiscard]] std::int64_t elements() const { return rows * width; }
};

namespace detail {

constexpr std::int64_t PeriodLimit = 1024;  // a repeated gain is expanded to at most this many

/// The cut of a RowShape into work, a function of the shape alone. Everything that turns rows,
/// width and affine into indices is here, for forward and backward alike.
///
/// Kernels walk a row in periods: the gains repeat every `period` elements, a multiple of affine
/// that is long enough for full vectors. Parameter gradients are summed per block of rows into one
/// partial of `period` columns each, and the partials are merged in block order.
class RowPlan {
 public:
  explicit RowPlan(const RowShape& shape);

  /// Throws ShapeError unless `shape` is one; op names the caller.
  static void check(const char* op, const RowShape& shape);

  std::int64_t period = 1;      ///< affine <= period <= width
  std::int64_t block_rows = 1;  ///< rows per partial of the parameter gradients
  std::int64_t blocks = 0;
  std::int64_t task_rows = 1;    ///< rows per task where nothing is reduced over rows
  std::int64_t task_blocks = 1;  ///< blocks per task

  /// Elements of T for `kinds` partials (gain, shift) per block: [blocks][kinds][period].
  [[nodiscard]] std::int64_t partials(std::int64_t kinds) const { return blocks * kinds * period; }
};

/// Whether a kernel that moves `arrays` arrays of a shape writes `out` past the caches: see
/// core/kernels/stream.hpp.
template <class T>
bool streams(const RowShape& shape, const RowPlan& plan, std::int64_t arrays, const T* out) {
  constexpr auto Size = static_cast<std::int64_t>(sizeof(T));
  return kernels::streams(arrays * shape.elements() * Size, out,
                          std::gcd(shape.width, plan.period) * Size);
}

/// Gain and shift as the row kernels read them: element number at & mask of a period. An absent one
/// reads the same ones or zeros again and again (mask 0).
template <class T>
struct RowGains {
  const T* gamma = nullptr;
  std::int64_t gamma_mask = 0;
  const T* beta = nullptr;
  std::int64_t beta_mask = 0;
};

/// Storage behind RowGains where the affine width is shorter than the period: its repetition.
template <class T>
class RepeatedGains {
 public:
  RepeatedGains(const RowShape& shape, std::span<const T> gamma, std::span<const T> beta);
  RepeatedGains(const RepeatedGains&) = delete;
  RepeatedGains& operator=(const RepeatedGains&) = delete;

  [[nodiscard]] const RowGains<T>& view() const { return view_; }

 private:
  // Aligned: a vector that straddles two cache lines halves the speed of the loops that read these.
  alignas(64) std::array<T, PeriodLimit> gamma_;
  alignas(64) std::array<T, PeriodLimit> beta_;
  RowGains<T> view_;
};

/// out[c] = sum over blocks and periods of partial number `kind`, in that order, in double.
template <class T>
void merge_partials(const RowShape& shape, const T* partials, std::int64_t kinds, std::int64_t kind,
                    std::span<T> out);

/// Throws ShapeError unless size == expected, or size == 0 and the argument may be absent.
void check_span(const char* op, const char* name, std::size_t size, std::int64_t expected,
                bool may_be_absent);

}  // namespace detail
}  // namespace steady
