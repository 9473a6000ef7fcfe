#include <steadygrad/core/ops/elementwise.hpp>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/elementwise.hpp>
#include <steadygrad/core/ops/check.hpp>
#include <steadygrad/core/tape.hpp>
#include <utility>

namespace steady {
namespace {

using kernels::name;
using kernels::Unary;

/// A function with its options.
struct Function {
  Unary op;
  double p0 = 0.0;
  double p1 = 0.0;
};

bool piecewise_linear(Unary op) {
  return op == Unary::Abs || op == Unary::Neg || op == Unary::Clamp || op == Unary::Relu ||
         op == Unary::LeakyRelu;
}

/// f''(x). The end of the line: there is no third derivative.
Tensor second(const Function& f, const Tensor& x) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  dispatch_float(name(f.op), x.dtype(), [&]<FloatElement T>() {
    kernels::unary_second<T>(f.op, x.data<T>(), y.mutable_data<T>(name(f.op)), f.p0, f.p1);
  });
  return record(name(f.op), y, {x}, {}, [op = f.op](BackwardCall&) {
    throw Error(fmt::format("{}: there is no third derivative of this operation", name(op)));
  });
}

/// g * d f'/d s for the saved tensor s: f'' where s is x; where s is y, the derivative of f' as a
/// function of y.
Tensor times_slope(const Function& f, const Tensor& g, const Tensor& s) {
  switch (f.op) {
    case Unary::Exp:  // f' = y
      return g;
    case Unary::Sqrt:  // f' = 1 / (2 y)
      return g * (-0.5 / square(s));
    case Unary::Tanh:  // f' = 1 - y^2
      return g * (-2.0 * s);
    case Unary::Sigmoid:  // f' = y (1 - y)
      return g * (1.0 - 2.0 * s);
    default:
      return g * second(f, s);
  }
}

/// dx = dy * f', with s = x or y as kernels::saves_output says. Linear in dy:
/// d(dx) = f' d(dy) + dy * df'/ds ds. With `last_use` dx takes the memory of dy if nobody else has
/// it.
Tensor backward(const Function& f, const Tensor& dy, const Tensor& s, bool last_use = false) {
  const bool in_place = last_use && dy.unique() && !recording();
  Tensor dx = in_place ? dy : Tensor::empty(dy.shape(), dy.dtype());
  dispatch_float(name(f.op), dy.dtype(), [&]<FloatElement T>() {
    kernels::unary_backward<T>(f.op, dy.data<T>(), s.data<T>(), dx.mutable_data<T>(name(f.op)),
                               f.p0, f.p1);
  });
  const bool curved = !piecewise_linear(f.op) && needs_gradient(s);
  return record(
      name(f.op), dx, {dy, curved ? s : Tensor()}, {s, curved ? dy : Tensor()},
      [f](BackwardCall& call) {
        call.give(0, [&] { return backward(f, call.grad(), call.saved(0)); });
        call.give(1, [&] { return times_slope(f, call.grad() * call.saved(1), call.saved(0)); });
      });
}

Tensor apply(const Function& f, const Tensor& x) {
  detail::check_float(name(f.op), "x", x);
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  dispatch_float(name(f.op), x.dtype(), [&]<FloatElement T>() {
    kernels::unary<T>(f.op, x.data<T>(), y.mutable_data<T>(name(f.op)), f.p0, f.p1);
  });
  return record(name(f.op), y, {x}, {kernels::saves_output(f.op) ? y : x}, [f](BackwardCall& call) {
    call.give(0, [&] { return backward(f, call.grad(), call.saved(0), true); });
  });
}

}  // namespace

Tensor neg(const Tensor& x) { return apply({Unary::Neg}, x); }
Tensor exp(const Tensor& x) { return apply({Unary::Exp}, x); }
Tensor log(const Tensor& x) { return apply({Unary::Log}, x); }
Tensor sqrt(const Tensor& x) { return apply({Unary::Sqrt}, x); }
Tensor rsqrt(const Tensor& x) { return apply({Unary::Rsqrt}, x); }
Tensor abs(const Tensor& x) { return apply({Unary::Abs}, x); }
Tensor square(const Tensor& x) { return apply({Unary::Square}, x); }
Tensor reciprocal(const Tensor& x) { return apply({Unary::Reciprocal}, x); }
Tensor tanh(const Tensor& x) { return apply({Unary::Tanh}, x); }
Tensor sigmoid(const Tensor& x) { return apply({Unary::Sigmoid}, x); }
Tensor relu(const Tensor& x) { return apply({Unary::Relu}, x); }
Tensor silu(const Tensor& x) { return apply({Unary::Silu}, x); }

Tensor swiglu(const Tensor& gate, const Tensor& x) {
  const char* op = "swiglu";
  detail::check_float(op, "gate", gate);
  check_defined(op, "x", x);
  check_same_dtype(op, gate, x);
  STEADY_CHECK(ShapeError, gate.shape() == x.shape(),
               "swiglu: gate and x must have one shape; got gate {}, x {}", describe(gate),
               describe(x));
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    kernels::gated_product<T>(Unary::Silu, gate.data<T>(), x.data<T>(), y.mutable_data<T>(op));
  });
  return record(op, y, {gate, x}, {gate, x}, [op](BackwardCall& call) {
    const Tensor &dy = call.grad(), &g = call.saved(0), &u = call.saved(1);
    if (recording()) {  // in operations that can be differentiated once more
      call.give(0, [&] { return backward({Unary::Silu}, dy * u, g); });
      call.give(1, [&] { return dy * silu(g); });
      return;
    }
    const bool in_place = dy.unique();  // dgate may have the memory of dy
    Tensor dgate, dx;
    if (call.needs(0)) dgate = in_place ? dy : Tensor::empty(dy.shape(), dy.dtype());
    if (call.needs(1)) dx = Tensor::empty(dy.shape(), dy.dtype());
    dispatch_float(op, dy.dtype(), [&]<FloatElement T>() {
      const auto span = [&](Tensor& t) {
        return t.defined() ? t.mutable_data<T>(op) : std::span<T>();
      };
      kernels::gated_product_backward<T>(Unary::Silu, dy.data<T>(), g.data<T>(), u.data<T>(),
                                         span(dgate), span(dx));
    });
    call.give(0, std::move(dgate));
    call.give(1, std::move(dx));
  });
}

Tensor pow(const Tensor& x, double exponent) {
  return exponent == 2.0 ? square(x) : apply({Unary::Pow, exponent}, x);
}

Tensor leaky_relu(const Tensor& x, double slope) { return apply({Unary::LeakyRelu, slope}, x); }

Tensor gelu(const Tensor& x, Gelu form) {
  return apply({form == Gelu::Erf ? Unary::GeluErf : Unary::GeluTanh}, x);
}

Tensor clamp(const Tensor& x, double low, double high) {
  STEADY_CHECK(Error, low <= high, "clamp: low must not exceed high; got {} and {}", low, high);
  return apply({Unary::Clamp, low, high}, x);
}

Tensor softplus(const Tensor& x, double beta, double threshold) {
  STEADY_CHECK(Error, beta > 0.0, "softplus: beta must be positive; got {}", beta);
  return apply({Unary::Softplus, beta, threshold}, x);
}

}  // namespace steady
