#include <steadygrad/core/ops/elementwise.hpp>

#include <algorithm>
#include <array>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/elementwise.hpp>
#include <steadygrad/core/kernels/expand.hpp>
#include <steadygrad/core/ops/check.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady {
namespace {

using kernels::Binary;
using kernels::name;

// --- derivatives ---

/// Gradient of the larger of a and b by a, as a constant: see kernels::larger_share.
Tensor share_of_first(const Tensor& a, const Tensor& b) {
  Tensor w = Tensor::empty(broadcast_shapes(a.shape(), b.shape(), "maximum"), a.dtype());
  const auto plan = kernels::make_broadcast({a.shape().extents(), b.shape().extents()}, "maximum");
  dispatch_float("maximum", a.dtype(), [&]<FloatElement T>() {
    kernels::larger_share<T>(plan, a.data<T>(), b.data<T>(), w.mutable_data<T>("maximum"));
  });
  return w;
}

/// d a^b / d a = b a^(b - 1). At a = b = 0 the power would be inf; with the exponent 1 it is 0.
Tensor pow_by_base(const Tensor& a, const Tensor& b) {
  const Tensor not_both_zero = [&] {
    const NoRecord constant;
    return abs(a) + abs(b);
  }();
  return b * pow(a, where(not_both_zero, b - 1.0, Tensor::scalar(1.0, b.dtype())));
}

/// d a^b / d b = a^b log a, and 0 at a = 0, where the logarithm would be -inf.
Tensor pow_by_exponent(const Tensor& a, const Tensor& b) {
  return pow(a, b) * log(where(a, a, Tensor::scalar(1.0, a.dtype())));
}

enum Saved : unsigned { Nothing = 0, A = 1, B = 2 };

/// The gradient by one operand before it is summed to the operand's shape, from that of the result
/// and the operands named in `saved` (the others are undefined).
struct Derivative {
  unsigned saved;
  Tensor (*of)(const Tensor& g, const Tensor& a, const Tensor& b);
};
struct Rule {
  Binary op;
  Derivative by_a;
  Derivative by_b;
};

using T = const Tensor&;
constexpr std::array<Rule, 7> Rules{{
    {Binary::Add, {Nothing, [](T g, T, T) { return g; }}, {Nothing, [](T g, T, T) { return g; }}},
    {Binary::Sub, {Nothing, [](T g, T, T) { return g; }}, {Nothing, [](T g, T, T) { return -g; }}},
    {Binary::Mul, {B, [](T g, T, T b) { return g * b; }}, {A, [](T g, T a, T) { return g * a; }}},
    {Binary::Div,
     {B, [](T g, T, T b) { return g / b; }},
     {A | B, [](T g, T a, T b) { return -(g * (a / b / b)); }}},
    {Binary::Pow,
     {A | B, [](T g, T a, T b) { return g * pow_by_base(a, b); }},
     {A | B, [](T g, T a, T b) { return g * pow_by_exponent(a, b); }}},
    {Binary::Maximum,
     {A | B, [](T g, T a, T b) { return g * share_of_first(a, b); }},
     {A | B, [](T g, T a, T b) { return g * share_of_first(b, a); }}},
    {Binary::Minimum,
     {A | B, [](T g, T a, T b) { return g * share_of_first(-a, -b); }},
     {A | B, [](T g, T a, T b) { return g * share_of_first(-b, -a); }}},
}};

constexpr const Rule& rule_of(Binary op) { return Rules[static_cast<std::size_t>(op)]; }
static_assert(std::ranges::all_of(Rules, [](const Rule& r) { return rule_of(r.op).op == r.op; }));

// --- two tensors ---

Tensor apply_broadcast(Binary op, const Tensor& a, const Tensor& b, const Tensor& saved_a,
                       const Tensor& saved_b) {
  Tensor y = Tensor::empty(broadcast_shapes(a.shape(), b.shape(), name(op)), a.dtype());
  const auto plan = kernels::make_broadcast({a.shape().extents(), b.shape().extents()}, name(op));
  dispatch_float(name(op), a.dtype(), [&]<FloatElement E>() {
    kernels::binary<E>(op, plan, a.data<E>(), b.data<E>(), y.mutable_data<E>(name(op)));
  });
  return record(name(op), std::move(y), {a, b}, {saved_a, saved_b},
                [op, a_shape = a.shape(), b_shape = b.shape()](BackwardCall& call) {
                  const auto by = [&](const Derivative& derivative, const Shape& shape) {
                    return sum_to(derivative.of(call.grad(), call.saved(0), call.saved(1)), shape);
                  };
                  call.give(0, [&] { return by(rule_of(op).by_a, a_shape); });
                  call.give(1, [&] { return by(rule_of(op).by_b, b_shape); });
                });
}

Tensor apply(Binary op, const Tensor& a, const Tensor& b) {
  detail::check_float(name(op), "a", a);
  detail::check_float(name(op), "b", b);
  check_same_dtype(name(op), a, b);
  const unsigned saved = (needs_gradient(a) ? rule_of(op).by_a.saved : Nothing) |
                         (needs_gradient(b) ? rule_of(op).by_b.saved : Nothing);
  const Tensor saved_a = (saved & A) != 0 ? a : Tensor();
  const Tensor saved_b = (saved & B) != 0 ? b : Tensor();
  if (a.shape() != b.shape()) return apply_broadcast(op, a, b, saved_a, saved_b);

  Tensor y = Tensor::empty(a.shape(), a.dtype());
  dispatch_float(name(op), a.dtype(), [&]<FloatElement E>() {
    kernels::binary<E>(op, a.data<E>(), b.data<E>(), y.mutable_data<E>(name(op)));
  });
  return record(name(op), std::move(y), {a, b}, {saved_a, saved_b}, [op](BackwardCall& call) {
    const auto by = [&](const Derivative& derivative) {
      return derivative.of(call.grad(), call.saved(0), call.saved(1));
    };
    call.give(0, [&] { return by(rule_of(op).by_a); });
    call.give(1, [&] { return by(rule_of(op).by_b); });
  });
}

// --- a tensor and a number ---

enum class Side { Left, Right };

/// The values of x op number (or number op x), not recorded; no tensor is made of the number.
Tensor evaluate(Binary op, const Tensor& x, double number, Side side_of_number) {
  detail::check_float(name(op), "the operand", x);
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  dispatch_float(name(op), x.dtype(), [&]<FloatElement E>() {
    const E value = static_cast<E>(number);
    const std::span<const E> one(&value, 1);
    const bool left = side_of_number == Side::Left;
    kernels::binary<E>(op, left ? one : x.data<E>(), left ? x.data<E>() : one,
                       y.mutable_data<E>(name(op)));
  });
  return y;
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) { return apply(Binary::Add, a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return apply(Binary::Sub, a, b); }
Tensor mul(const Tensor& a, const Tensor& b) { return apply(Binary::Mul, a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return apply(Binary::Div, a, b); }
Tensor pow(const Tensor& a, const Tensor& b) { return apply(Binary::Pow, a, b); }
Tensor maximum(const Tensor& a, const Tensor& b) { return apply(Binary::Maximum, a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return apply(Binary::Minimum, a, b); }

Tensor add(const Tensor& a, double b) {
  return record("add", evaluate(Binary::Add, a, b, Side::Right), {a}, {},
                [](BackwardCall& call) { call.give(0, call.grad()); });
}

Tensor sub(const Tensor& a, double b) {
  return record("sub", evaluate(Binary::Sub, a, b, Side::Right), {a}, {},
                [](BackwardCall& call) { call.give(0, call.grad()); });
}

Tensor sub(double a, const Tensor& b) {
  return record("sub", evaluate(Binary::Sub, b, a, Side::Left), {b}, {},
                [](BackwardCall& call) { call.give(0, [&] { return -call.grad(); }); });
}

Tensor mul(const Tensor& a, double b) {
  return record("mul", evaluate(Binary::Mul, a, b, Side::Right), {a}, {},
                [b](BackwardCall& call) { call.give(0, [&] { return call.grad() * b; }); });
}

Tensor div(const Tensor& a, double b) {
  return record("div", evaluate(Binary::Div, a, b, Side::Right), {a}, {},
                [b](BackwardCall& call) { call.give(0, [&] { return call.grad() / b; }); });
}

Tensor div(double a, const Tensor& b) {
  return record("div", evaluate(Binary::Div, b, a, Side::Left), {b}, {b}, [a](BackwardCall& call) {
    call.give(0, [&] { return call.grad() * (-a / square(call.saved(0))); });
  });
}

// --- where ---

namespace {

/// y = chosen(condition) from a and b, which may have any broadcastable shape.
Tensor choose(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const Shape shape =
      broadcast_shapes(broadcast_shapes(condition.shape(), a.shape(), "where"), b.shape(), "where");
  Tensor y = Tensor::empty(shape, a.dtype());
  const auto plan = kernels::make_broadcast(
      {condition.shape().extents(), a.shape().extents(), b.shape().extents()}, "where");
  dispatch_float("where", a.dtype(), [&]<FloatElement E>() {
    kernels::where<E>(plan, condition.data<E>(), a.data<E>(), b.data<E>(),
                      y.mutable_data<E>("where"));
  });
  return record("where", y, {a, b}, {condition},
                [a_shape = a.shape(), b_shape = b.shape()](BackwardCall& call) {
                  const Tensor& g = call.grad();
                  const Tensor zero = Tensor::scalar(0.0, g.dtype());
                  call.give(0, [&] { return sum_to(choose(call.saved(0), g, zero), a_shape); });
                  call.give(1, [&] { return sum_to(choose(call.saved(0), zero, g), b_shape); });
                });
}

}  // namespace

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check_defined("where", "condition", condition);
  detail::check_float("where", "a", a);
  detail::check_float("where", "b", b);
  check_same_dtype("where", a, b);
  STEADY_CHECK(ShapeError, !is_float(condition.dtype()) || condition.dtype() == a.dtype(),
               "where: the condition must be i32, i64 or of the dtype of a; got condition {}, a {}",
               describe(condition), describe(a));
  (void)broadcast_shapes(broadcast_shapes(condition.shape(), a.shape(), "where"), b.shape(),
                         "where");
  const Tensor mask = is_float(condition.dtype()) ? condition.detach() : cast(condition, a.dtype());
  return choose(mask, a, b);
}

}  // namespace steady
