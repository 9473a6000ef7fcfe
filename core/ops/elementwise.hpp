#pragma once

#include <steadygrad/core/tensor.hpp>

/// Elementwise operations. All of them take f32 or f64, make a new tensor, have a first and a
/// second derivative, and throw ShapeError, before anything is allocated, for undefined tensors,
/// integer tensors and operands of different dtypes (nothing is promoted; a double takes the
/// tensor's dtype). Two or three tensors broadcast like NumPy: axes align at the end, an extent of
/// 1 is repeated; a gradient is summed back to its operand's shape.
namespace steady {

// --- two operands ---

[[nodiscard]] Tensor add(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor sub(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor mul(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor div(const Tensor& a, const Tensor& b);
/// a^b. Where a = 0 the gradient by b is 0, and that of 0^0 by a too; the gradient by b is NaN
/// where a < 0.
[[nodiscard]] Tensor pow(const Tensor& a, const Tensor& b);
/// The larger one, NaN where either is NaN. A tie gives each operand half of the gradient.
[[nodiscard]] Tensor maximum(const Tensor& a, const Tensor& b);
/// The smaller one, NaN where either is NaN. A tie gives each operand half of the gradient.
[[nodiscard]] Tensor minimum(const Tensor& a, const Tensor& b);

/// y = condition != 0 ? a : b; all three broadcast. `condition` is i32, i64 or of the dtype of a
/// and b, and a constant: it gets no gradient. The side that is not chosen gets exactly 0.
[[nodiscard]] Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

[[nodiscard]] Tensor add(const Tensor& a, double b);
[[nodiscard]] Tensor sub(const Tensor& a, double b);
[[nodiscard]] Tensor sub(double a, const Tensor& b);
[[nodiscard]] Tensor mul(const Tensor& a, double b);
[[nodiscard]] Tensor div(const Tensor& a, double b);
[[nodiscard]] Tensor div(double a, const Tensor& b);

[[nodiscard]] inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
[[nodiscard]] inline Tensor operator+(const Tensor& a, double b) { return add(a, b); }
[[nodiscard]] inline Tensor operator+(double a, const Tensor& b) { return add(b, a); }
[[nodiscard]] inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
[[nodiscard]] inline Tensor operator-(const Tensor& a, double b) { return sub(a, b); }
[[nodiscard]] inline Tensor operator-(double a, const Tensor& b) { return sub(a, b); }
[[nodiscard]] inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
[[nodiscard]] inline Tensor operator*(const Tensor& a, double b) { return mul(a, b); }
[[nodiscard]] inline Tensor operator*(double a, const Tensor& b) { return mul(b, a); }
[[nodiscard]] inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
[[nodiscard]] inline Tensor operator/(const Tensor& a, double b) { return div(a, b); }
[[nodiscard]] inline Tensor operator/(double a, const Tensor& b) { return div(a, b); }

// --- one operand: y has the shape and dtype of x ---

[[nodiscard]] Tensor neg(const Tensor& x);
[[nodiscard]] inline Tensor operator-(const Tensor& x) { return neg(x); }
/// x^exponent; the gradient of x^0 is 0.
[[nodiscard]] Tensor pow(const Tensor& x, double exponent);
[[nodiscard]] Tensor exp(const Tensor& x);
[[nodiscard]] Tensor log(const Tensor& x);
[[nodiscard]] Tensor sqrt(const Tensor& x);
/// 1 / sqrt(x)
[[nodiscard]] Tensor rsqrt(const Tensor& x);
/// Gradient 0 at x = 0.
[[nodiscard]] Tensor abs(const Tensor& x);
[[nodiscard]] Tensor square(const Tensor& x);
/// 1 / x
[[nodiscard]] Tensor reciprocal(const Tensor& x);
/// min(max(x, low), high); the gradient passes at both bounds. Either bound may be infinite. Throws
/// Error unless low <= high.
[[nodiscard]] Tensor clamp(const Tensor& x, double low, double high);

[[nodiscard]] Tensor tanh(const Tensor& x);
/// 1 / (1 + exp(-x))
[[nodiscard]] Tensor sigmoid(const Tensor& x);
/// max(x, 0), gradient 0 at x = 0.
[[nodiscard]] Tensor relu(const Tensor& x);
/// x for x > 0, else slope * x; gradient `slope` at x = 0.
[[nodiscard]] Tensor leaky_relu(const Tensor& x, double slope = 0.01);

/// Which gelu: with the normal distribution function itself or its tanh approximation. They differ
/// by up to 5e-4.
enum class Gelu { Erf, Tanh };
/// Erf: x * Phi(x). Tanh: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
/// [Hendrycks & Gimpel 2016]
[[nodiscard]] Tensor gelu(const Tensor& x, Gelu form = Gelu::Erf);
/// x * sigmoid(x)
[[nodiscard]] Tensor silu(const Tensor& x);
/// silu(gate) * x, to the bit, in one pass; nothing but its inputs is kept for backward. Throws
/// ShapeError unless shapes and dtypes are equal.                        [Shazeer 2020, eq. 5]
[[nodiscard]] Tensor swiglu(const Tensor& gate, const Tensor& x);
/// log(1 + exp(beta x)) / beta, and x itself where beta x > threshold. Throws Error unless beta >
/// 0.
[[nodiscard]] Tensor softplus(const Tensor& x, double beta = 1.0, double threshold = 20.0);

}  // namespace steady
