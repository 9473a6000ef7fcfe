#include <cmath>
#include <steadygrad/core/kernels/unary_simd.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/unary_simd.cpp"
#include <hwy/foreach_target.h>

#include <steadygrad/core/kernels/math-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

using kernels::Unary;
using math::Float;

HWY_INLINE Float one() { return fill(1.0F); }
HWY_INLINE Float zero() { return fill(0.0F); }
/// Beyond +-200 the functions below are saturated in float; products like x * sigmoid'(x) then have
/// their limit 0 instead of inf * 0.
HWY_INLINE Float saturate(Float x) { return math::at_most(math::at_least(x, -200.0F), 200.0F); }

// value(x), and slope(dy, s) = dy f'(s) with s = x or y as saves_output says; the formulas stand in
// unary_formulas.hpp.
struct Exp {
  HWY_INLINE Float value(Float x) const { return math::exp(x); }
  HWY_INLINE Float slope(Float dy, Float y) const { return hn::Mul(dy, y); }
};
struct Log {
  HWY_INLINE Float value(Float x) const { return math::log(x); }
  HWY_INLINE Float slope(Float dy, Float x) const { return hn::Div(dy, x); }
};
struct Sqrt {
  HWY_INLINE Float value(Float x) const { return hn::Sqrt(x); }
  HWY_INLINE Float slope(Float dy, Float y) const { return hn::Mul(dy, hn::Div(fill(0.5F), y)); }
};
struct Rsqrt {
  HWY_INLINE Float value(Float x) const { return hn::Div(one(), hn::Sqrt(x)); }
  HWY_INLINE Float slope(Float dy, Float x) const {
    return hn::Mul(dy, hn::Div(hn::Div(fill(-0.5F), hn::Sqrt(x)), x));
  }
};
struct Abs {
  HWY_INLINE Float value(Float x) const { return hn::Abs(x); }
  HWY_INLINE Float slope(Float dy, Float x) const {
    const Float sign = hn::IfThenElse(hn::Eq(x, zero()), zero(), hn::CopySign(one(), x));
    return hn::Mul(dy, hn::IfThenElse(hn::IsNaN(x), x, sign));
  }
};
struct Neg {
  HWY_INLINE Float value(Float x) const { return hn::Neg(x); }
  HWY_INLINE Float slope(Float dy, Float) const { return hn::Neg(dy); }
};
struct Reciprocal {
  HWY_INLINE Float value(Float x) const { return hn::Div(one(), x); }
  HWY_INLINE Float slope(Float dy, Float x) const {
    return hn::Mul(dy, hn::Div(hn::Div(fill(-1.0F), x), x));
  }
};
struct Square {
  HWY_INLINE Float value(Float x) const { return hn::Mul(x, x); }
  HWY_INLINE Float slope(Float dy, Float x) const { return hn::Mul(dy, hn::Add(x, x)); }
};
struct Clamp {
  float low, high;
  HWY_INLINE Float value(Float x) const { return math::at_most(math::at_least(x, low), high); }
  HWY_INLINE Float slope(Float dy, Float x) const {
    const auto inside = hn::And(hn::Ge(x, fill(low)), hn::Le(x, fill(high)));
    return hn::Mul(dy, hn::IfThenElseZero(inside, one()));
  }
};
struct Tanh {
  HWY_INLINE Float value(Float x) const { return math::tanh(x); }
  HWY_INLINE Float slope(Float dy, Float y) const {
    return hn::Mul(dy, hn::Mul(hn::Sub(one(), y), hn::Add(one(), y)));
  }
};
struct Sigmoid {
  HWY_INLINE Float value(Float x) const { return math::Logistic(x).s; }
  HWY_INLINE Float slope(Float dy, Float y) const {
    return hn::Mul(dy, hn::Mul(y, hn::Sub(one(), y)));
  }
};
struct Relu {
  HWY_INLINE Float value(Float x) const { return hn::IfThenElse(hn::Lt(x, zero()), zero(), x); }
  HWY_INLINE Float slope(Float dy, Float y) const {
    return hn::IfThenElse(hn::Le(y, zero()), zero(), dy);
  }
};
struct LeakyRelu {
  float factor;
  HWY_INLINE Float value(Float x) const {
    return hn::IfThenElse(hn::Gt(x, zero()), x, hn::Mul(x, fill(factor)));
  }
  HWY_INLINE Float slope(Float dy, Float x) const {
    return hn::IfThenElse(hn::Gt(x, zero()), dy, hn::Mul(dy, fill(factor)));
  }
};
struct GeluErf {
  HWY_INLINE Float value(Float x) const {
    return hn::Mul(math::at_least(x, -200.0F), math::Normal(x).cdf);
  }
  HWY_INLINE Float slope(Float dy, Float x) const {
    const Float z = saturate(x);
    const math::Normal p(z);
    return hn::Mul(dy, fma(z, p.density, p.cdf));
  }
};
struct GeluTanh {
  static constexpr float K = 1.59576912F;  // 2 sqrt(2 / pi)
  static constexpr float C = 0.044715F;
  static HWY_INLINE math::Logistic logistic(Float x) {
    const Float cubic = fma(hn::Mul(x, x), fill(K * C), fill(K));
    return math::Logistic(hn::Mul(x, cubic));
  }
  HWY_INLINE Float value(Float x) const {
    return hn::Mul(math::at_least(x, -200.0F), logistic(x).s);
  }
  HWY_INLINE Float slope(Float dy, Float x) const {
    const Float z = saturate(x);
    const math::Logistic p = logistic(z);
    const Float inner = fma(hn::Mul(z, z), fill(3 * K * C), fill(K));
    return hn::Mul(dy, fma(hn::Mul(z, hn::Mul(p.s, p.c)), inner, p.s));
  }
};
struct Silu {
  HWY_INLINE Float value(Float x) const {
    return hn::Mul(math::at_least(x, -200.0F), math::Logistic(x).s);
  }
  HWY_INLINE Float slope(Float dy, Float x) const {
    const Float z = saturate(x);
    const math::Logistic p(z);
    return hn::Mul(dy, hn::Mul(p.s, fma(z, p.c, one())));
  }
};
struct Softplus {
  float beta, threshold;
  HWY_INLINE Float value(Float x) const {
    const Float z = hn::Mul(x, fill(beta));
    const Float tail = math::log1p_unit(math::exp(hn::Neg(hn::Abs(z))));
    const Float y = hn::Add(hn::IfThenElseZero(hn::Gt(z, zero()), z), tail);
    return hn::IfThenElse(hn::Gt(z, fill(threshold)), x, hn::Div(y, fill(beta)));
  }
  HWY_INLINE Float slope(Float dy, Float x) const {
    const Float z = hn::Mul(x, fill(beta));
    return hn::IfThenElse(hn::Gt(z, fill(threshold)), dy, hn::Mul(dy, math::Logistic(z).s));
  }
};

template <class F>
HWY_NOINLINE void values(F f, const float* x, float* y, std::int64_t n) {
  const std::int64_t step = lanes<float>();
  std::int64_t i = 0;
  for (; i + step <= n; i += step) store<float>(f.value(load(x + i, Whole{})), y + i, Whole{});
  if (i < n) store<float>(f.value(load(x + i, Part{n - i})), y + i, Part{n - i});
}

template <class F>
HWY_NOINLINE void slopes(F f, const float* dy, const float* s, float* dx, std::int64_t n) {
  const std::int64_t step = lanes<float>();
  std::int64_t i = 0;
  for (; i + step <= n; i += step)
    store<float>(f.slope(load(dy + i, Whole{}), load(s + i, Whole{})), dx + i, Whole{});
  if (i < n) {
    const Part part{n - i};
    store<float>(f.slope(load(dy + i, part), load(s + i, part)), dx + i, part);
  }
}

/// Calls body(functor) with the struct of `op`.
template <class Body>
HWY_INLINE void visit(Unary op, float p0, float p1, const Body& body) {
  switch (op) {
    case Unary::Exp:
      return body(Exp{});
    case Unary::Log:
      return body(Log{});
    case Unary::Sqrt:
      return body(Sqrt{});
    case Unary::Rsqrt:
      return body(Rsqrt{});
    case Unary::Abs:
      return body(Abs{});
    case Unary::Neg:
      return body(Neg{});
    case Unary::Reciprocal:
      return body(Reciprocal{});
    case Unary::Square:
      return body(Square{});
    case Unary::Clamp:
      return body(Clamp{p0, p1});
    case Unary::Tanh:
      return body(Tanh{});
    case Unary::Sigmoid:
      return body(Sigmoid{});
    case Unary::Relu:
      return body(Relu{});
    case Unary::LeakyRelu:
      return body(LeakyRelu{p0});
    case Unary::GeluErf:
      return body(GeluErf{});
    case Unary::GeluTanh:
      return body(GeluTanh{});
    case Unary::Silu:
      return body(Silu{});
    case Unary::Softplus:
      return body(Softplus{p0, p1});
    case Unary::Pow:
      return;
  }
}

struct Values {
  const float* x;
  float* y;
  std::int64_t n;
  template <class F>
  HWY_INLINE void operator()(F f) const {
    values(f, x, y, n);
  }
};
struct Slopes {
  const float* dy;
  const float* s;
  float* dx;
  std::int64_t n;
  template <class F>
  HWY_INLINE void operator()(F f) const {
    slopes(f, dy, s, dx, n);
  }
};

void forward(Unary op, const float* x, float* y, std::int64_t n, float p0, float p1) {
  visit(op, p0, p1, Values{x, y, n});
}
void backward(Unary op, const float* dy, const float* s, float* dx, std::int64_t n, float p0,
              float p1) {
  visit(op, p0, p1, Slopes{dy, s, dx, n});
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace steady {
namespace {
HWY_EXPORT(forward);
HWY_EXPORT(backward);
}  // namespace

namespace kernels {

void unary_simd(Unary op, const float* x, float* y, std::int64_t n, float p0, float p1) {
  HWY_DYNAMIC_DISPATCH(forward)(op, x, y, n, p0, p1);
}
void unary_backward_simd(Unary op, const float* dy, const float* saved, float* dx, std::int64_t n,
                         float p0, float p1) {
  HWY_DYNAMIC_DISPATCH(backward)(op, dy, saved, dx, n, p0, p1);
}

}  // namespace kernels
}  // namespace steady
#endif
