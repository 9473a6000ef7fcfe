// Elementary functions of float vectors, each from its own polynomials (minimax in the weighted
// sense of the result's relative error; the rest is rounding). Largest errors measured over the
// whole range, with FMA: exp 1, log 1, tanh 3, logistic 2, softplus 2, normal_cdf 4 units in the
// last place. Included once per SIMD target after <hwy/foreach_target.h>. NaN in, NaN out.

#if defined(STEADY_CORE_KERNELS_MATH_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef STEADY_CORE_KERNELS_MATH_INL_HPP
#undef STEADY_CORE_KERNELS_MATH_INL_HPP
#else
#define STEADY_CORE_KERNELS_MATH_INL_HPP
#endif

#include <steadygrad/core/kernels/simd-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace math {

using Float = Vec<float>;
using Int = hn::Vec<hn::RebindToSigned<Tag<float>>>;

HWY_INLINE Float polynomial(Float, float c) { return fill(c); }
/// c0 + c1 x + c2 x^2 + ...
template <class... Rest>
HWY_INLINE Float polynomial(Float x, float c0, Rest... rest) {
  return fma(polynomial(x, rest...), x, fill(c0));
}

// Comparisons with a NaN are false, so these let it pass on every target; hn::Min may not.
HWY_INLINE Float at_most(Float x, float high) {
  return hn::IfThenElse(hn::Gt(x, fill(high)), fill(high), x);
}
HWY_INLINE Float at_least(Float x, float low) {
  return hn::IfThenElse(hn::Lt(x, fill(low)), fill(low), x);
}

/// 2^n for -126 <= n <= 127.
HWY_INLINE Float power_of_two(Int n) {
  const hn::RebindToSigned<Tag<float>> di;
  return hn::BitCast(Tag<float>(), hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

/// exp(x + low) = 2^n (1 + m), |low| small against x.
struct Exponential {
  Int n;
  Float m;

  HWY_INLINE explicit Exponential(Float x, Float low)
      : n(hn::NearestInt(hn::Mul(hn::Add(x, low), fill(1.44269504F)))), m(x) {
    const Float k = hn::ConvertTo(Tag<float>(), n);
    // log 2 in two parts, the first of 10 bits: k times it is exact.
    Float r = fnma(k, fill(0.693359375F), x);
    r = hn::Add(fnma(k, fill(-2.12194440e-4F), r), low);
    const Float q = polynomial(r, 4.999999404e-01F, 1.666651517e-01F, 4.166845605e-02F,
                               8.369403891e-03F, 1.381319831e-03F);
    m = fma(hn::Mul(r, r), q, r);
  }

  /// In two steps: 2^n itself may be out of range while the product is denormal or largest.
  [[nodiscard]] HWY_INLINE Float value() const {
    const Int half = hn::ShiftRight<1>(n);
    const Float v = hn::Mul(hn::Add(m, fill(1.0F)), power_of_two(half));
    return hn::Mul(v, power_of_two(hn::Sub(n, half)));
  }
};

HWY_INLINE Float exp(Float x, Float low) {
  return Exponential(at_most(at_least(x, -105.0F), 89.0F), low).value();
}
HWY_INLINE Float exp(Float x) { return exp(x, fill(0.0F)); }

/// exp(x) for x <= 0, 0 below -87.3: fewer steps, for softmax. n = round(x log2 e) is what stands
/// in the last bits of x log2 e + 3/2 2^23; 127 more make it the exponent of 2^n.
HWY_INLINE Float exp_flushed(Float x) {
  const Tag<float> d;
  const hn::RebindToSigned<Tag<float>> di;
  const Float magic = fill(12582912.0F + 127.0F);
  const Float shifted = fma(x, fill(1.44269504F), magic);
  const Float n = hn::Sub(shifted, magic);
  const Float r = fnma(n, fill(-2.12194440e-4F), fnma(n, fill(0.693359375F), x));
  const Float q = polynomial(r, 4.999999404e-01F, 1.666651517e-01F, 4.166845605e-02F,
                             8.369403891e-03F, 1.381319831e-03F);
  const Float m = fma(hn::Mul(r, r), q, r);
  const Float power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, fill(-87.3F)), fma(m, power, power));
}

#if HWY_TARGET <= HWY_AVX2
/// exp_flushed with three multiplications less: x = (8 n + k) log 2 / 8 + r, |r| <= log 2 / 16, and
/// exp(x) = 2^n 2^(k/8) (1 + r + r^2 (c2 + c3 r)). The last bits of x 8 log2 e + 3/2 2^23 + 8 * 127
/// are 8 (n + 127) + k: moved by 20 they are the exponent of 2^n and the k that roots[k], the
/// fraction of 2^(k/8) less k, takes away again.
HWY_INLINE Float exp_flushed_by_table(Float x) {
  const Tag<float> d;
  const hn::RebindToSigned<Tag<float>> di;
  HWY_ALIGN static constexpr std::int32_t Roots[16] = {
      0, -289342, -509968, -655657, -719629, -694486, -572163, -343865,
      0, -289342, -509968, -655657, -719629, -694486, -572163, -343865};
  const Float magic = fill(12582912.0F + 1016.0F);
  const Float shifted = fma(x, fill(8 * 1.44269504F), magic);
  const Float n = hn::Sub(shifted, magic);
  const Float r = fnma(n, fill(-2.12194440e-4F / 8), fnma(n, fill(0.693359375F / 8), x));
  const Float m = fma(hn::Mul(r, r), polynomial(r, 5.00064731e-01F, 1.66668594e-01F), r);
  const Int bits = hn::BitCast(di, shifted);
  const auto k = hn::IndicesFromVec(di, hn::And(bits, hn::Set(di, 7)));
  const Int root = hn::TableLookupLanes(hn::Load(di, Roots), k);
  const Float power = hn::BitCast(d, hn::Add(root, hn::ShiftLeft<20>(bits)));
  return hn::IfThenZeroElse(hn::Lt(x, fill(-87.3F)), fma(m, power, power));
}
#else
HWY_INLINE Float exp_flushed_by_table(Float x) { return exp_flushed(x); }
#endif

/// x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)):  log x = e log 2 + f - f^2 / 2 + f^3 p(f).
HWY_INLINE Float log(Float x) {
  const Tag<float> d;
  const hn::RebindToSigned<Tag<float>> di;
  const auto tiny = hn::Lt(x, fill(1.17549435e-38F));
  const Float scaled = hn::IfThenElse(tiny, hn::Mul(x, fill(0x1p25F)), x);
  const Int bits = hn::BitCast(di, scaled);
  const Int e = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f3504f3)));
  const Float f = hn::Sub(hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(e))), fill(1.0F));
  const Float k = hn::Sub(hn::ConvertTo(d, e), hn::IfThenElseZero(tiny, fill(25.0F)));
  const Float p =
      polynomial(f, 3.333333135e-01F, -2.500081956e-01F, 2.000122666e-01F, -1.662336141e-01F,
                 1.420175433e-01F, -1.316013932e-01F, 1.276158243e-01F, -7.634603977e-02F);
  const Float square = hn::Mul(f, f);
  Float y = fma(k, fill(-2.12194440e-4F), hn::Mul(hn::Mul(square, f), p));
  y = hn::Add(fnma(fill(0.5F), square, y), f);
  y = fma(k, fill(0.693359375F), y);
  const Float infinity = fill(HUGE_VALF);
  y = hn::IfThenElse(hn::Lt(x, infinity), y, x);  // also NaN
  y = hn::IfThenElse(hn::Eq(x, fill(0.0F)), hn::Neg(infinity), y);
  return hn::IfThenElse(hn::Lt(x, fill(0.0F)), hn::Sub(infinity, infinity), y);
}

/// log(1 + u) for 0 <= u <= 1: 2 artanh(s) with s = u / (2 + u).
HWY_INLINE Float log1p_unit(Float u) {
  const Float s = hn::Div(u, hn::Add(u, fill(2.0F)));
  const Float z = hn::Mul(s, s);
  const Float r =
      polynomial(z, 6.666641235e-01F, 4.002164304e-01F, 2.799968719e-01F, 2.802320421e-01F);
  return fma(hn::Mul(s, z), r, hn::Add(s, s));
}

/// sigmoid(x) and 1 - sigmoid(x), both to full relative precision.
struct Logistic {
  Float s;
  Float c;

  HWY_INLINE explicit Logistic(Float x) : s(x), c(x) {
    const Float e = exp(hn::Neg(hn::Abs(x)));
    const Float large = hn::Div(fill(1.0F), hn::Add(e, fill(1.0F)));
    const Float small = hn::Mul(e, large);
    const auto negative = hn::Lt(x, fill(0.0F));
    s = hn::IfThenElse(negative, small, large);
    c = hn::IfThenElse(negative, large, small);
  }
};

/// With t = exp(2 |x|) - 1: tanh |x| = t / (t + 2); t from 2^n m + (2^n - 1) keeps small x exact.
HWY_INLINE Float tanh(Float x) {
  const Exponential e(at_most(hn::Add(hn::Abs(x), hn::Abs(x)), 20.0F), fill(0.0F));
  const Float scale = power_of_two(e.n);
  const Float t = fma(scale, e.m, hn::Sub(scale, fill(1.0F)));
  const Float y = hn::CopySign(hn::Div(t, hn::Add(t, fill(2.0F))), x);
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

/// The normal distribution: cdf(x) and density(x), with one exponential E = exp(-x^2 / 2).
/// cdf(-u) = E G(u) for u >= 0 with G(u) = 4-scaled polynomial in (u - 4) / (u + 4) over u + 4.
struct Normal {
  Float cdf;
  Float density;

  HWY_INLINE explicit Normal(Float x) : cdf(x), density(x) {
    const Tag<float> d;
    const hn::RebindToSigned<Tag<float>> di;
    const Float u = at_most(hn::Abs(x), 14.5F);
    // u^2 exactly: the upper half of u has 12 bits, the rest goes to exp as the low part.
    const Float upper = hn::BitCast(d, hn::And(hn::BitCast(di, u), hn::Set(di, ~0xfff)));
    const Float low = hn::Mul(hn::Mul(hn::Sub(u, upper), hn::Add(u, upper)), fill(-0.5F));
    const Float e = Exponential(hn::Mul(hn::Mul(upper, upper), fill(-0.5F)), low).value();
    const Float inverse = hn::Div(fill(1.0F), hn::Add(u, fill(4.0F)));
    const Float w = hn::Mul(hn::Sub(u, fill(4.0F)), inverse);
    const Float g =
        polynomial(w, 7.552851439e-01F, -6.078965664e-01F, 3.871369064e-01F, -1.865234375e-01F,
                   6.040383130e-02F, -7.525271270e-03F, -3.512554104e-03F, 1.569923479e-03F,
                   1.793543197e-04F, -1.319717558e-04F);
    const Float tail = hn::Mul(e, hn::Mul(g, inverse));
    cdf = hn::IfThenElse(hn::Gt(x, fill(0.0F)), hn::Sub(fill(1.0F), tail), tail);
    density = hn::Mul(e, fill(0.398942280F));
  }
};

}  // namespace math
}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#endif
