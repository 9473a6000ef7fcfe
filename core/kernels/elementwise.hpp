#pragma once

#include <cstdint>
#include <span>
#include <steadygrad/core/kernels/broadcast.hpp>

namespace steady::kernels {

/// y = f(x). p0 and p1 are the options of the functions that have some.
enum class Unary {
  Exp,
  Log,
  Sqrt,
  Rsqrt,
  Abs,
  Neg,
  Reciprocal,
  Square,
  Clamp,  ///< min(max(x, p0), p1); NaN stays NaN
  Tanh,
  Sigmoid,
  Relu,
  LeakyRelu,  ///< x for x > 0, else p0 * x
  GeluErf,    ///< x * Phi(x), Phi the normal distribution function
  GeluTanh,   ///< x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
  Silu,       ///< x * sigmoid(x)
  Softplus,   ///< log(1 + exp(p0 x)) / p0, and x itself where p0 * x > p1 (PyTorch: p0 1, p1 20)
  Pow,        ///< x^p0
};

/// True where unary_backward and unary_second want the output y as `saved`: Exp, Sqrt, Tanh,
/// Sigmoid and Relu. The others want the input x.
[[nodiscard]] constexpr bool saves_output(Unary op) {
  return op == Unary::Exp || op == Unary::Sqrt || op == Unary::Tanh || op == Unary::Sigmoid ||
         op == Unary::Relu;
}

/// "exp", "leaky_relu", ...
[[nodiscard]] const char* name(Unary op);

/// y[i] = f(x[i]); y may be x. T: float or double. Spans of one length, else Error.
/// Limits at infinity and at overflow are the mathematical ones (silu(-inf) = 0); NaN stays NaN.
/// The value of an element depends on nothing but its input: not on its place, not on threads.
template <class T>
void unary(Unary op, std::span<const T> x, std::span<T> y, double p0 = 0, double p1 = 0);

/// dx[i] = dy[i] * f'(x[i]); dx may be dy. `saved` is x or y, see saves_output.
/// Conventions: Relu and Abs 0 at x = 0, LeakyRelu p0 at x = 0, Clamp 1 at both bounds and 0 for
/// NaN, Softplus 1 above the threshold, Pow with p0 = 0 is 0 everywhere.
template <class T>
void unary_backward(Unary op, std::span<const T> dy, std::span<const T> saved, std::span<T> dx,
                    double p0 = 0, double p1 = 0);

/// out[i] = f''(x[i]) as a function of x, computed in double; `saved` is x or y, see saves_output.
/// 0 for the piecewise linear functions.
template <class T>
void unary_second(Unary op, std::span<const T> saved, std::span<T> out, double p0 = 0,
                  double p1 = 0);

/// A gated product y[i] = f(x[i]) * u[i], in one pass with the bits of the two operations; y may be
/// x or u. Functions without options whose backward wants x, see saves_output.
template <class T>
void gated_product(Unary op, std::span<const T> x, std::span<const T> u, std::span<T> y);

/// dx[i] = (dy[i] * u[i]) * f'(x[i]) and du[i] = dy[i] * f(x[i]); either may be empty. dx may be
/// dy.
template <class T>
void gated_product_backward(Unary op, std::span<const T> dy, std::span<const T> x,
                            std::span<const T> u, std::span<T> dx, std::span<T> du);

enum class Binary {
  Add,
  Sub,
  Mul,
  Div,
  Pow,
  Maximum,  ///< NaN where either is NaN
  Minimum,  ///< NaN where either is NaN
};

/// "add", "maximum", ...
[[nodiscard]] const char* name(Binary op);

/// y = a op b under a plan of two operands; y has plan.numel elements. y may be an operand exactly
/// when that operand has the shape of y.
template <class T>
void binary(Binary op, const Broadcast& plan, std::span<const T> a, std::span<const T> b,
            std::span<T> y);

/// y = a op b without a plan: each operand has y's elements in y's order, or one for all of y.
template <class T>
void binary(Binary op, std::span<const T> a, std::span<const T> b, std::span<T> y);

/// y = condition != 0 ? a : b under a plan of three operands (condition, a, b); y may be a or b
/// exactly when that operand has the shape of y.
template <class T>
void where(const Broadcast& plan, std::span<const T> condition, std::span<const T> a,
           std::span<const T> b, std::span<T> y);

/// y[i] += alpha * x[i].
template <class T>
void axpy(double alpha, std::span<const T> x, std::span<T> y);

/// y[i] = alpha * x[i]; y may be x.
template <class T>
void scale(double alpha, std::span<const T> x, std::span<T> y);

/// y[i] = value. T: float, double, int32_t or int64_t; so for copy.
template <class T>
void fill(T value, std::span<T> y);

template <class T>
void copy(std::span<const T> x, std::span<T> y);

/// y[i] = To(x[i]), among float, double, int32_t and int64_t; a float towards zero.
template <class From, class To>
void convert(std::span<const From> x, std::span<To> y);

}  // namespace steady::kernels
