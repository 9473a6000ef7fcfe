#include <algorithm>
#include <numeric>
#include <steadygrad/core/kernels/stream.hpp>
#include <steadygrad/layers/norm/column_apply_kernel.hpp>
#include <steadygrad/layers/norm/column_coefficients_kernel.hpp>
#include <steadygrad/layers/norm/column_lines_kernel.hpp>
#include <steadygrad/layers/norm/row_stats.hpp>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "layers/norm/column_apply_kernel.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, which fixes the target it is read for.
#include <steadygrad/core/kernels/stream-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

using detail::AffineLines;
using detail::GradientLines;
using detail::LineShape;

/// Vectors of a strip. The coefficients of a narrow one stay in registers where there are enough,
/// those of a wide one, twice a line of few channels, in the first cache: memory is read in its
/// order.
constexpr int WideVectors = 8, NarrowVectors = 4;

/// Coefficients of a strip of kVectors vectors.
template <class T, int kVectors>
struct Held {
  Vec<T> part[kVectors];

  template <class Part>
  HWY_INLINE Held(const T* p, Part one) {
    for (int k = 0; k < kVectors; ++k) part[k] = load(p + k * lanes<T>(), one);
  }
};

// Calls strip(first line, lines, column, integral_constant vectors, part, distance) for strips of
// WideVectors, then of NarrowVectors and of one, that cover all lines. Several strips take turns
// after a few lines, so that memory is still read in about its order; `distance` from an element is
// what its strip reads that much later, to be fetched meanwhile where arrays come from memory.
template <class T, class Strip>
HWY_INLINE void for_strips(const LineShape& s, Strip&& strip) {
  constexpr std::int64_t Turn = 16;
  const std::int64_t step = lanes<T>(), wide = WideVectors * step, narrow = NarrowVectors * step;
  const bool one =
      (s.columns == wide || s.columns == narrow || s.columns <= step) && s.columns == s.stride;
  const std::int64_t turn = one ? std::max<std::int64_t>(s.lines, 1) : Turn;
  const std::int64_t distance = one ? Ahead : Turn * s.stride;
  for (std::int64_t line = 0; line < s.lines; line += turn) {
    const std::int64_t lines = std::min(turn, s.lines - line);
    std::int64_t j = 0;
    for (; j + wide <= s.columns; j += wide) {
      strip(line, lines, j, std::integral_constant<int, WideVectors>{}, Whole{}, distance);
    }
    for (; j + narrow <= s.columns; j += narrow) {
      strip(line, lines, j, std::integral_constant<int, NarrowVectors>{}, Whole{}, distance);
    }
    for (; j + step <= s.columns; j += step) {
      strip(line, lines, j, std::integral_constant<int, 1>{}, Whole{}, distance);
    }
    if (j < s.columns) {
      strip(line, lines, j, std::integral_constant<int, 1>{}, Part{s.columns - j}, distance);
    }
  }
}

template <bool kStream, bool kAhead, bool kRelu, class T>
HWY_FLATTEN void affine(const LineShape& s, const AffineLines<T>& w) {
  for_strips<T>(s, [&](std::int64_t line, std::int64_t lines, std::int64_t j, auto vectors,
                       auto part, std::int64_t distance) HWY_ATTR {
    constexpr int Vectors = vectors();
    const Held<T, Vectors> mean(w.mean + j, part), scale(w.scale + j, part),
        shift(w.shift + j, part);
    const std::int64_t step = lanes<T>(), stride = s.stride, from = line * stride + j;
    const T *x = w.x + from, *ahead = kAhead ? w.ahead + from : x + distance;
    T* y = w.y + from;
    for (std::int64_t n = 0; n < lines; ++n, x += stride, ahead += stride, y += stride) {
      for (int k = 0; k < Vectors; ++k) {
        if (kAhead || kStream) hwy::Prefetch(ahead + k * step);
        const Vec<T> d = hn::Sub(load(x + k * step, part), mean.part[k]);
        Vec<T> v = fma(d, scale.part[k], shift.part[k]);
        if constexpr (kRelu) v = hn::IfThenElse(hn::Lt(v, fill(T(0))), fill(T(0)), v);
        put<kStream>(v, y + k * step, part);
      }
    }
  });
  end_stream<kStream>();
}

/// Coefficients that only some loops have.
struct NoneHeld {};
template <bool kHeld, class T, int kVectors>
using MaybeHeld = std::conditional_t<kHeld, Held<T, kVectors>, NoneHeld>;
template <bool kHeld, class T, int kVectors, class Part>
HWY_INLINE MaybeHeld<kHeld, T, kVectors> maybe_held(const T* p, Part one) {
  if constexpr (kHeld) {
    return Held<T, kVectors>(p, one);
  } else {
    return NoneHeld{};
  }
}

template <bool kStream, bool kAhead, bool kGate, class T>
HWY_FLATTEN void gradient(const LineShape& s, const GradientLines<T>& w) {
  for_strips<T>(s, [&](std::int64_t line, std::int64_t lines, std::int64_t j, auto vectors,
                       auto part, std::int64_t distance) HWY_ATTR {
    constexpr int Vectors = vectors();
    const Held<T, Vectors> mean(w.mean + j, part), a(w.a + j, part), b(w.b + j, part),
        c(w.k + j, part);
    const T *gate_scale = kGate ? w.gate.scale + j : nullptr,
            *gate_shift = kGate ? w.gate.shift + j : nullptr;
    [[maybe_unused]] const auto scale = maybe_held<kGate, T, Vectors>(gate_scale, part);
    [[maybe_unused]] const auto shift = maybe_held<kGate, T, Vectors>(gate_shift, part);
    const std::int64_t step = lanes<T>(), stride = s.stride, from = line * stride + j;
    const T *x = w.x + from, *dy = w.dy + from;
    const T *ahead = kAhead ? w.ahead + from : x + distance,
            *ahead_dy = kAhead ? w.ahead_dy + from : dy + distance;
    T* dx = w.dx + from;
    for (std::int64_t n = 0; n < lines;
         ++n, x += stride, dy += stride, ahead += stride, ahead_dy += stride, dx += stride) {
      for (int k = 0; k < Vectors; ++k) {
        if (kAhead || kStream) {
          hwy::Prefetch(ahead + k * step);
          hwy::Prefetch(ahead_dy + k * step);
        }
        const Vec<T> d = hn::Sub(load(x + k * step, part), mean.part[k]);
        const Vec<T> v = fma(b.part[k], d, c.part[k]);
        Vec<T> u = load(dy + k * step, part);
        if constexpr (kGate) u = gated(u, fma(d, scale.part[k], shift.part[k]));
        put<kStream>(fma(a.part[k], u, v), dx + k * step, part);
      }
    }
  });
  end_stream<kStream>();
}

template <bool kRelu, class T>
void run_affine(const LineShape& shape, const AffineLines<T>& work) {
  const LineShape s = shape;      // copies, which no store
  const AffineLines<T> w = work;  // through y can change
  if (s.stream) {
    w.ahead == nullptr ? affine<true, false, kRelu>(s, w) : affine<true, true, kRelu>(s, w);
  } else {
    w.ahead == nullptr ? affine<false, false, kRelu>(s, w) : affine<false, true, kRelu>(s, w);
  }
}
template <class T>
void run(const LineShape& s, const AffineLines<T>& w) {
  w.relu ? run_affine<true>(s, w) : run_affine<false>(s, w);
}

template <bool kGate, class T>
void run_gradient(const LineShape& shape, const GradientLines<T>& work) {
  const LineShape s = shape;
  const GradientLines<T> w = work;
  if (s.stream) {
    w.ahead == nullptr ? gradient<true, false, kGate>(s, w) : gradient<true, true, kGate>(s, w);
  } else {
    w.ahead == nullptr ? gradient<false, false, kGate>(s, w) : gradient<false, true, kGate>(s, w);
  }
}
template <class T>
void run(const LineShape& s, const GradientLines<T>& w) {
  w.gate.scale == nullptr ? run_gradient<false>(s, w) : run_gradient<true>(s, w);
}

}  // namespace

void affine_lines_f32(const LineShape& s, const AffineLines<float>& w) { run(s, w); }
void affine_lines_f64(const LineShape& s, const AffineLines<double>& w) { run(s, w); }
void gradient_lines_f32(const LineShape& s, const GradientLines<float>& w) { run(s, w); }
void gradient_lines_f64(const LineShape& s, const GradientLines<double>& w) { run(s, w); }

}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace steady {

using detail::check_span;
using detail::Coefficients;
using detail::ColumnPlan;

namespace {

HWY_EXPORT(affine_lines_f32);
HWY_EXPORT(affine_lines_f64);
HWY_EXPORT(gradient_lines_f32);
HWY_EXPORT(gradient_lines_f64);

}  // namespace

namespace detail {

template <class T>
void affine_lines(const LineShape& shape, const AffineLines<T>& work) {
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(affine_lines_f32)(shape, work);
  } else {
    HWY_DYNAMIC_DISPATCH(affine_lines_f64)(shape, work);
  }
}
template void affine_lines(const LineShape&, const AffineLines<float>&);
template void affine_lines(const LineShape&, const AffineLines<double>&);

template <class T>
void gradient_lines(const LineShape& shape, const GradientLines<T>& work) {
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(gradient_lines_f32)(shape, work);
  } else {
    HWY_DYNAMIC_DISPATCH(gradient_lines_f64)(shape, work);
  }
}
template void gradient_lines(const LineShape&, const GradientLines<float>&);
template void gradient_lines(const LineShape&, const GradientLines<double>&);

}  // namespace detail

namespace {

template <class T>
bool streams(const ColumnShape& shape, const ColumnPlan& plan, std::int64_t arrays, const T* out) {
  constexpr auto Size = static_cast<std::int64_t>(sizeof(T));
  return kernels::streams(arrays * shape.elements() * Size, out,
                          std::gcd(plan.period, ColumnPlan::ColumnBlock) * Size);
}

// Runs body(first line, lines, columns, first channel) for all pieces and for the rest.
template <class Body>
void for_pieces_and_rest(const ColumnPlan& plan, Body body) {
  plan.for_pieces(true,
                  [&](std::int64_t, std::int64_t line, std::int64_t lines, std::int64_t column,
                      std::int64_t columns) { body(line, lines, columns, column); });
  if (plan.rest_rows > 0) {
    body(plan.lines, std::int64_t{1}, plan.rest_rows * plan.channels, std::int64_t{0});
  }
}

}  // namespace

template <class T>
void column_affine(const ColumnShape& shape, const ColumnAffine<T>& c, std::span<const T> x,
                   std::span<T> y, bool relu) {
  const char* op = "column_affine";
  ColumnPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "mean", c.mean.size(), shape.channels, false);
  check_span(op, "scale", c.scale.size(), shape.channels, false);
  check_span(op, "shift", c.shift.size(), shape.channels, false);
  check_span(op, "y", y.size(), shape.elements(), false);
  const ColumnPlan plan(shape);
  const bool stream = streams(shape, plan, 2, y.data());
  for_pieces_and_rest(
      plan, [&](std::int64_t line, std::int64_t lines, std::int64_t columns, std::int64_t column) {
        const std::int64_t offset = line * plan.period + column;
        const Coefficients<T> mean(plan, c.mean, column, columns);
        const Coefficients<T> scale(plan, c.scale, column, columns);
        const Coefficients<T> shift(plan, c.shift, column, columns);
        detail::affine_lines<T>(
            {plan.period, lines, columns, stream},
            {x.data() + offset, nullptr, y.data() + offset, mean.at, scale.at, shift.at, relu});
      });
}

template <class T>
void column_gradient(const ColumnShape& shape, const ColumnGradient<T>& c, std::span<const T> x,
                     const ColumnRows<T>& dy, std::span<T> dx, const ColumnGate<T>& gate) {
  const char* op = "column_gradient";
  ColumnPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "dy", dy.size(), shape.elements(), false);
  check_span(op, "mean", c.mean.size(), shape.channels, false);
  check_span(op, "a", c.a.size(), shape.channels, false);
  check_span(op, "b", c.b.size(), shape.channels, false);
  check_span(op, "k", c.k.size(), shape.channels, false);
  check_span(op, "dx", dx.size(), shape.elements(), false);
  check_span(op, "gate's scale", gate.scale.size(), shape.channels, true);
  check_span(op, "gate's shift", gate.shift.size(), std::ssize(gate.scale), false);
  const ColumnPlan plan(shape);
  const bool stream = streams(shape, plan, 3, dx.data());
  for_pieces_and_rest(plan, [&](std::int64_t line, std::int64_t lines, std::int64_t columns,
                                std::int64_t column) {
    const Coefficients<T> mean(plan, c.mean, column, columns);
    const Coefficients<T> a(plan, c.a, column, columns);
    const Coefficients<T> b(plan, c.b, column, columns);
    const Coefficients<T> k(plan, c.k, column, columns);
    const detail::GateCoefficients<T> passes(plan, gate, column, columns);
    const auto run = [&](std::int64_t from, std::int64_t count, const T* rows) {
      const std::int64_t offset = from * plan.period + column;
      detail::gradient_lines<T>({plan.period, count, columns, stream},
                                {x.data() + offset, rows + column, nullptr, nullptr,
                                 dx.data() + offset, mean.at, a.at, b.at, k.at, passes.lines()});
    };
    line == plan.lines ? run(line, lines, dy.rest(plan)) : dy.for_lines(plan, line, lines, run);
  });
}

template void column_affine(const ColumnShape&, const ColumnAffine<float>&, std::span<const float>,
                            std::span<float>, bool);
template void column_affine(const ColumnShape&, const ColumnAffine<double>&,
                            std::span<const double>, std::span<double>, bool);
template void column_gradient(const ColumnShape&, const ColumnGradient<float>&,
                              std::span<const float>, const ColumnRows<float>&, std::span<float>,
                              const ColumnGate<float>&);
template void column_gradient(const ColumnShape&, const ColumnGradient<double>&,
                              std::span<const double>, const ColumnRows<double>&, std::span<double>,
                              const ColumnGate<double>&);

}  // namespace steady
#endif
