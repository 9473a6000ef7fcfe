#include <steadygrad/core/kernels/tensor_stats.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <steadygrad/core/kernels/scratch.hpp>
#include <steadygrad/core/parallel.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/tensor_stats.cpp"
#include <hwy/foreach_target.h>

#include <steadygrad/core/kernels/simd-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

/// The same bin is hit again and again: neighbours count in tables of their own, so that an
/// increment need not wait for the last.
constexpr int Tables = 4;
using Counts = std::uint32_t[Tables][kernels::MagnitudeBins];

/// Bin of every lane, from the exponent bits alone: zeros land in the first bin and values that are
/// not finite in the last one.
template <class T>
HWY_INLINE auto bins_of(Vec<T> magnitude) {
  const hn::RebindToSigned<Tag<T>> d;
  constexpr int Mantissa = std::numeric_limits<T>::digits - 1;
  constexpr int Bias = std::numeric_limits<T>::max_exponent - 1;
  constexpr int Low = Bias + kernels::LowestMagnitude;
  const auto exponent = hn::ShiftRight<Mantissa>(hn::BitCast(d, magnitude));
  const auto bin = hn::Sub(exponent, hn::Set(d, Low));
  return hn::Min(hn::Max(bin, hn::Zero(d)), hn::Set(d, kernels::MagnitudeBins - 1));
}

template <class T>
HWY_INLINE void count_bins(Vec<T> magnitude, std::int64_t n, Counts& counts) {
  using Int = hn::TFromD<hn::RebindToSigned<Tag<T>>>;
  HWY_ALIGN Int bin[HWY_MAX_BYTES / sizeof(T)];
  hn::Store(bins_of<T>(magnitude), hn::RebindToSigned<Tag<T>>(), bin);
  for (std::int64_t i = 0; i < n; ++i) ++counts[i % Tables][bin[i]];
}

/// Sums of d and d^2 in double lanes.
template <class V>
struct Power {
  V sum;
  V square;
  HWY_INLINE void add(V d) {
    sum = hn::Add(sum, d);
    square = fma(d, d, square);
  }
};

HWY_INLINE void add_deviation(Vec<float> x, Vec<float> shift, Power<Vec<double>>& low,
                              Power<Vec<double>>& high) {
  // Converted first: the difference of two floats need not be a float.
  const Tag<double> d;
#if HWY_TARGET == HWY_SCALAR
  low.add(hn::Sub(hn::PromoteTo(d, x), hn::PromoteTo(d, shift)));
  (void)high;
#else
  const hn::Half<Tag<float>> half;
  low.add(hn::Sub(hn::PromoteTo(d, hn::LowerHalf(half, x)),
                  hn::PromoteTo(d, hn::LowerHalf(half, shift))));
  high.add(hn::Sub(hn::PromoteTo(d, hn::UpperHalf(half, x)),
                   hn::PromoteTo(d, hn::UpperHalf(half, shift))));
#endif
}
HWY_INLINE void add_deviation(Vec<double> x, Vec<double> shift, Power<Vec<double>>& low,
                              Power<Vec<double>>&) {
  low.add(hn::Sub(x, shift));
}

/// What the vectors of a chunk add up to. A block is counted into the histogram or not, and the
/// histogram's ends need to know the zeros and the finite ones among the counted.
template <class T>
struct ChunkSums {
  Vec<T> largest;
  Power<Vec<double>> low;
  Power<Vec<double>> high;
  std::size_t zeros[2] = {};
  std::size_t finite[2] = {};

  // Spelled out: an implicit constructor would not be compiled for the target.
  HWY_INLINE ChunkSums()
      : largest(fill(T(0))), low{fill(0.0), fill(0.0)}, high{fill(0.0), fill(0.0)} {}
};

template <bool Counted, class T>
HWY_INLINE void add_block(const T* x, std::int64_t n, Vec<T> shift, ChunkSums<T>& sums,
                          Counts& counts) {
  const Tag<T> d;
  const Vec<T> infinity = fill(std::numeric_limits<T>::infinity());
  for (std::int64_t i = 0; i + lanes<T>() <= n; i += lanes<T>()) {
    const Vec<T> v = load(x + i, Whole{});
    const Vec<T> magnitude = hn::Abs(v);
    const auto is_finite = hn::Lt(magnitude, infinity);
    sums.finite[Counted] += hn::CountTrue(d, is_finite);
    sums.zeros[Counted] += hn::CountTrue(d, hn::Eq(v, fill(T(0))));
    sums.largest = hn::Max(sums.largest, hn::IfThenElseZero(is_finite, magnitude));
    add_deviation(hn::IfThenElse(is_finite, v, shift), shift, sums.low, sums.high);
    if constexpr (Counted) count_bins<T>(magnitude, lanes<T>(), counts);
  }
}

/// One chunk, n < 2^31. Deviations are from its first finite element, so that a large mean costs no
/// digits. `first_block`: number of the chunk's first block in the buffer; -1: all are counted.
template <class T>
HWY_FLATTEN kernels::StatsSums stats_of(const T* x, std::int64_t n, std::int64_t first_block) {
  const Tag<double> dd;
  const T* first = std::find_if(x, x + n, [](T v) { return std::isfinite(v); });
  const T origin = first == x + n ? T(0) : *first;
  const Vec<T> shift = fill(origin);
  Counts counts = {};
  ChunkSums<T> sums;
  const std::int64_t whole = n - n % lanes<T>();
  const auto counted_at = [&](std::int64_t i) {
    return first_block < 0 || kernels::counts_block(first_block + i / kernels::StatsBlock);
  };
  for (std::int64_t i = 0; i < whole; i += kernels::StatsBlock) {
    const std::int64_t size = std::min(kernels::StatsBlock, whole - i);
    if (counted_at(i)) {
      add_block<true, T>(x + i, size, shift, sums, counts);
    } else {
      add_block<false, T>(x + i, size, shift, sums, counts);
    }
  }
  kernels::StatsSums s;
  s.max_abs = static_cast<double>(hn::GetLane(hn::MaxOfLanes(Tag<T>(), sums.largest)));
  double sum = hn::GetLane(hn::SumOfLanes(dd, hn::Add(sums.low.sum, sums.high.sum)));
  double square = hn::GetLane(hn::SumOfLanes(dd, hn::Add(sums.low.square, sums.high.square)));
  const std::size_t rest = counted_at(whole) ? 1 : 0;
  if (whole < n && rest == 1) {
    count_bins<T>(hn::Abs(load(x + whole, Part{n - whole})), n - whole, counts);
  }
  for (std::int64_t i = whole; i < n; ++i) {
    sums.zeros[rest] += x[i] == T(0) ? 1 : 0;
    if (!std::isfinite(x[i])) continue;
    ++sums.finite[rest];
    s.max_abs = std::max(s.max_abs, std::abs(static_cast<double>(x[i])));
    const double deviation = static_cast<double>(x[i]) - static_cast<double>(origin);
    sum += deviation;
    square += deviation * deviation;
  }
  const std::size_t finite = sums.finite[0] + sums.finite[1];
  s.count = n;
  s.zeros = static_cast<std::int64_t>(sums.zeros[0] + sums.zeros[1]);
  s.non_finite = n - static_cast<std::int64_t>(finite);
  const double m = finite == 0 ? 0.0 : sum / static_cast<double>(finite);
  s.mean = static_cast<double>(origin) + m;
  s.m2 = std::max(0.0, square - sum * m);
  std::int64_t counted = 0;
  for (std::size_t bin = 0; bin < kernels::MagnitudeBins; ++bin) {
    for (const auto& table : counts) s.histogram[bin] += table[bin];
    counted += s.histogram[bin];
  }
  s.histogram.front() -= static_cast<std::int64_t>(sums.zeros[1]);
  s.histogram.back() -= counted - static_cast<std::int64_t>(sums.finite[1]);
  return s;
}

/// Sums of the first four powers of the doubles in a vector of T.
struct Powers {
  Vec<double> sum[4];
  HWY_INLINE Powers() : sum{fill(0.0), fill(0.0), fill(0.0), fill(0.0)} {}
  HWY_INLINE void add(Vec<double> v) {
    const Vec<double> square = hn::Mul(v, v);
    sum[0] = hn::Add(sum[0], v);
    sum[1] = hn::Add(sum[1], square);
    sum[2] = fma(square, v, sum[2]);
    sum[3] = fma(square, square, sum[3]);
  }
};

HWY_INLINE void add_powers(Vec<double> v, Powers& low, Powers&) { low.add(v); }
HWY_INLINE void add_powers(Vec<float> v, Powers& low, Powers& high) {
  const Tag<double> d;
#if HWY_TARGET == HWY_SCALAR
  low.add(hn::PromoteTo(d, v));
  (void)high;
#else
  const hn::Half<Tag<float>> half;
  low.add(hn::PromoteTo(d, hn::LowerHalf(half, v)));
  high.add(hn::PromoteTo(d, hn::UpperHalf(half, v)));
#endif
}

template <class T>
HWY_FLATTEN std::array<double, 4> powers_of(const T* x, std::int64_t n) {
  Powers low;
  Powers high;
  const std::int64_t step = lanes<T>();
  std::int64_t i = 0;
  for (; i + step <= n; i += step) add_powers(load(x + i, Whole{}), low, high);
  if (i < n) add_powers(load(x + i, Part{n - i}), low, high);  // absent lanes are zero
  std::array<double, 4> sums{};
  for (std::size_t k = 0; k < 4; ++k) {
    sums[k] = hn::GetLane(hn::SumOfLanes(Tag<double>(), hn::Add(low.sum[k], high.sum[k])));
  }
  return sums;
}

std::array<double, 4> powers_f32(const float* x, std::int64_t n) { return powers_of<float>(x, n); }
std::array<double, 4> powers_f64(const double* x, std::int64_t n) {
  return powers_of<double>(x, n);
}

kernels::StatsSums stats_f32(const float* x, std::int64_t n, std::int64_t first_block) {
  return stats_of<float>(x, n, first_block);
}
kernels::StatsSums stats_f64(const double* x, std::int64_t n, std::int64_t first_block) {
  return stats_of<double>(x, n, first_block);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace steady {
namespace {

HWY_EXPORT(stats_f32);
HWY_EXPORT(stats_f64);
HWY_EXPORT(powers_f32);
HWY_EXPORT(powers_f64);

constexpr std::int64_t Chunk = 1 << 15;
static_assert(Chunk % kernels::StatsBlock == 0);

kernels::StatsSums stats_of_chunk(const float* x, std::int64_t n, std::int64_t first_block) {
  return HWY_DYNAMIC_DISPATCH(stats_f32)(x, n, first_block);
}
kernels::StatsSums stats_of_chunk(const double* x, std::int64_t n, std::int64_t first_block) {
  return HWY_DYNAMIC_DISPATCH(stats_f64)(x, n, first_block);
}

std::array<double, 4> powers_of_chunk(const float* x, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(powers_f32)(x, n);
}
std::array<double, 4> powers_of_chunk(const double* x, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(powers_f64)(x, n);
}

void merge(kernels::StatsSums& total, const kernels::StatsSums& next) {
  const auto a = static_cast<double>(total.count - total.non_finite);
  const auto b = static_cast<double>(next.count - next.non_finite);
  if (b > 0) {
    const double delta = next.mean - total.mean;
    total.m2 += next.m2 + delta * delta * (a * b / (a + b));
    total.mean = a > 0 ? total.mean + delta * (b / (a + b)) : next.mean;
  }
  total.count += next.count;
  total.zeros += next.zeros;
  total.non_finite += next.non_finite;
  total.max_abs = std::max(total.max_abs, next.max_abs);
  for (std::size_t i = 0; i < total.histogram.size(); ++i) total.histogram[i] += next.histogram[i];
}

/// The chunks' values in order.
template <class Value, class F>
std::span<const Value> over_chunks(std::int64_t n, F&& value) {
  const std::span<Value> partial =
      kernels::thread_scratch<Value>().template take<Value>((n + Chunk - 1) / Chunk);
  parallel_for(n, Chunk, [&](std::int64_t begin, std::int64_t end) {
    partial[static_cast<std::size_t>(begin / Chunk)] = value(begin, end - begin);
  });
  return partial;
}

/// <a, b>, <a, a> and <b, b> of a chunk, in four independent chains each.
template <class T>
kernels::InnerProducts products_of_chunk(const T* a, const T* b, std::int64_t n) {
  constexpr std::int64_t Lanes = 4;
  double ab[Lanes] = {};
  double aa[Lanes] = {};
  double bb[Lanes] = {};
  const auto add = [&](std::int64_t i, std::int64_t lane) {
    const auto u = static_cast<double>(a[i]);
    const auto v = static_cast<double>(b[i]);
    ab[lane] += u * v;
    aa[lane] += u * u;
    bb[lane] += v * v;
  };
  std::int64_t i = 0;
  for (; i + Lanes <= n; i += Lanes) {
    for (std::int64_t lane = 0; lane < Lanes; ++lane) add(i + lane, lane);
  }
  for (; i < n; ++i) add(i, 0);
  const auto total = [](const double* v) { return (v[0] + v[1]) + (v[2] + v[3]); };
  return {total(ab), total(aa), total(bb)};
}

}  // namespace

namespace kernels {

template <class T>
StatsSums tensor_stats(std::span<const T> x) {
  StatsSums total;
  const bool all = std::ssize(x) <= CountedWhole;
  for (const StatsSums& next :
       over_chunks<StatsSums>(std::ssize(x), [&](std::int64_t begin, std::int64_t n) {
         return stats_of_chunk(x.data() + begin, n, all ? -1 : begin / StatsBlock);
       })) {
    merge(total, next);
  }
  return total;
}

template <class T>
InnerProducts inner_products(std::span<const T> a, std::span<const T> b) {
  InnerProducts total;
  for (const InnerProducts& next :
       over_chunks<InnerProducts>(std::ssize(a), [&](std::int64_t begin, std::int64_t n) {
         return products_of_chunk(a.data() + begin, b.data() + begin, n);
       })) {
    total.ab += next.ab;
    total.aa += next.aa;
    total.bb += next.bb;
  }
  return total;
}

template <class T>
std::array<double, 4> power_sums(std::span<const T> x) {
  using Sums = std::array<double, 4>;
  Sums total{};
  for (const Sums& next : over_chunks<Sums>(std::ssize(x), [&](std::int64_t begin, std::int64_t n) {
         return powers_of_chunk(x.data() + begin, n);
       })) {
    for (std::size_t k = 0; k < total.size(); ++k) total[k] += next[k];
  }
  return total;
}

template <class T>
void difference(std::span<const T> a, std::span<const T> b, std::span<T> y) {
  parallel_for(std::ssize(y), Chunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<std::size_t>(i);
      y[at] = a[at] - b[at];
    }
  });
}

template StatsSums tensor_stats(std::span<const float>);
template StatsSums tensor_stats(std::span<const double>);
template InnerProducts inner_products(std::span<const float>, std::span<const float>);
template InnerProducts inner_products(std::span<const double>, std::span<const double>);
template std::array<double, 4> power_sums(std::span<const float>);
template std::array<double, 4> power_sums(std::span<const double>);
template void difference(std::span<const float>, std::span<const float>, std::span<float>);
template void difference(std::span<const double>, std::span<const double>, std::span<double>);

}  // namespace kernels
}  // namespace steady
#endif
