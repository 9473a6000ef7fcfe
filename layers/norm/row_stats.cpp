#include <algorithm>
#include <array>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/layers/norm/row_stats.hpp>
#include <type_traits>

namespace steady::detail {
namespace {

constexpr std::int64_t TaskElements = 65536;  // enough work to pay for handing a task to a thread
constexpr std::int64_t TaskRows = 8;          // a walk takes no more of them at once
constexpr std::int64_t BlockRows = 64;        // partials cost 4 / (3 * rows) extra memory traffic
constexpr std::int64_t MergeColumns = 256;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

RowPlan::RowPlan(const RowShape& shape) {
  const auto [rows, width, affine] = shape;
  if (rows == 0 || width == 0) return;
  period = std::min(affine, width);
  if (affine < width && affine < PeriodLimit) {
    period = affine * std::min(PeriodLimit / affine, width / affine);
  }
  const std::int64_t repeats = ceil_div(width, period);
  const std::int64_t cycle =
      std::max<std::int64_t>(affine / width, 1);  // rows of a partial's width
  block_rows = repeats > 1 ? std::max<std::int64_t>(BlockRows / repeats, 1)
                           : std::clamp(ceil_div(rows, 8), TaskRows, cycle * BlockRows);
  blocks = ceil_div(rows, block_rows);
  task_rows = std::max(TaskElements / width / TaskRows, std::int64_t{1}) * TaskRows;
  task_blocks = std::max<std::int64_t>(TaskElements / (block_rows * width), 1);
}

void RowPlan::check(const char* op, const RowShape& shape) {
  STEADY_CHECK(
      ShapeError,
      shape.rows >= 0 && shape.width >= 1 && shape.affine >= 1 && shape.width % shape.affine == 0,
      "{}: needs rows >= 0, width >= 1 and an affine width that divides it; got rows {}, "
      "width {}, affine {}",
      op, shape.rows, shape.width, shape.affine);
}

namespace {

// One vector of the widest target, and more.
alignas(64) constexpr std::array<double, 32> Ones = [] {
  std::array<double, 32> ones{};
  ones.fill(1.0);
  return ones;
}();
alignas(64) constexpr std::array<float, 64> OnesF = [] {
  std::array<float, 64> ones{};
  ones.fill(1.0F);
  return ones;
}();
alignas(64) constexpr std::array<double, 32> Zeros{};
alignas(64) constexpr std::array<float, 64> ZerosF{};

template <class T>
const T* repeat(const RowShape& shape, std::int64_t period, std::span<const T> values,
                std::span<T> room) {
  if (period == std::min(shape.affine, shape.width)) return values.data();
  for (std::int64_t base = 0; base < period; base += shape.affine) {
    std::copy(values.begin(), values.end(), room.begin() + base);
  }
  return room.data();
}

template <class T>
const T* constant(bool one) {
  if constexpr (std::is_same_v<T, float>) {
    return one ? OnesF.data() : ZerosF.data();
  } else {
    return one ? Ones.data() : Zeros.data();
  }
}

}  // namespace

template <class T>
RepeatedGains<T>::RepeatedGains(const RowShape& shape, std::span<const T> gamma,
                                std::span<const T> beta)
    : view_{constant<T>(true), 0, constant<T>(false), 0} {
  const std::int64_t period = RowPlan(shape).period;
  if (!gamma.empty()) {
    view_.gamma = repeat<T>(shape, period, gamma, gamma_);
    view_.gamma_mask = -1;
  }
  if (!beta.empty()) {
    view_.beta = repeat<T>(shape, period, beta, beta_);
    view_.beta_mask = -1;
  }
}
template class RepeatedGains<float>;
template class RepeatedGains<double>;

template <class T>
void merge_partials(const RowShape& shape, const T* partials, std::int64_t kinds, std::int64_t kind,
                    std::span<T> out) {
  const RowPlan plan(shape);
  const std::int64_t columns = std::max(plan.period, shape.affine);
  parallel_for(shape.affine, MergeColumns, [&](std::int64_t begin, std::int64_t end) {
    std::array<double, MergeColumns> sum{};
    const auto count = static_cast<std::size_t>(end - begin);
    for (std::int64_t block = 0; block < plan.blocks; ++block) {
      const T* p = partials + (block * kinds + kind) * columns + begin;
      for (std::int64_t base = 0; base < columns; base += shape.affine) {
        for (std::size_t c = 0; c < count; ++c) {
          sum[c] += static_cast<double>(p[static_cast<std::size_t>(base) + c]);
        }
      }
    }
    T* o = out.data() + begin;
    for (std::size_t c = 0; c < count; ++c) o[c] = static_cast<T>(sum[c]);
  });
}
template void merge_partials(const RowShape&, const float*, std::int64_t, std::int64_t,
                             std::span<float>);
template void merge_partials(const RowShape&, const double*, std::int64_t, std::int64_t,
                             std::span<double>);

void check_span(const char* op, const char* name, std::size_t size, std::int64_t expected,
                bool may_be_absent) {
  STEADY_CHECK(ShapeError,
               static_cast<std::int64_t>(size) == expected || (may_be_absent && size == 0),
               "{}: needs {} elements in {}; got {}", op, expected, name, size);
}

}  // namespace steady::detail
