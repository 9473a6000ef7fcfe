#pragma once

#include <cstdint>
#include <span>
#include <steadygrad/layers/norm/row_stats.hpp>

// Element-wise stand-ins for a norm; T is float or double.
//   y = f(z) * gamma + beta,   z = alpha * x + shift,   f = tanh or erf
// x, dy, y, dx, ddx, ddy, dx2: [rows, width]. gamma, beta and their gradients: [affine]. alpha and
// shift are one number each for all elements. An empty span stands for "absent": gain 1, shift 0,
// an output nobody needs. Outputs are assigned, never added to, and overlap no other argument.
// Sizes that do not match throw ShapeError first. Bits do not depend on the number of threads.

namespace steady {

enum class Squash { Tanh, Erf };

/// The function and the two numbers that stand before it.
template <class T>
struct SquashCurve {
  Squash f = Squash::Tanh;
  T alpha = T(1);
  T shift = T(0);
};

/// rows = 0 is legal everywhere.
template <class T>
void squash_forward(const RowShape& shape, const SquashCurve<T>& curve, std::span<const T> x,
                    std::span<const T> gamma, std::span<const T> beta, std::span<T> y);

/// Elements of T that squash_backward and squash_double_backward need as workspace.
[[nodiscard]] std::int64_t squash_workspace(const RowShape& shape);

/// What squash_backward makes; each may be empty. dalpha, dshift: [1].
template <class T>
struct SquashGradients {
  std::span<T> dx{}, dgamma{}, dbeta{}, dalpha{}, dshift{};
};

/// First derivative.
template <class T>
void squash_backward(const RowShape& shape, const SquashCurve<T>& curve, std::span<const T> x,
                     std::span<const T> dy, std::span<const T> gamma, const SquashGradients<T>& out,
                     std::span<T> workspace);

/// The cotangents of what squash_backward makes (empty: zero).
template <class T>
struct SquashCotangents {
  std::span<const T> dx{}, dgamma{}, dbeta{}, dalpha{}, dshift{};
};

/// What squash_double_backward makes: gradients of dy and of what `SquashGradients` has but beta;
/// each may be empty.
template <class T>
struct SquashSecond {
  std::span<T> ddy{}, dx2{}, dgamma2{}, dalpha2{}, dshift2{};
};

/// Derivative of squash_backward.
template <class T>
void squash_double_backward(const RowShape& shape, const SquashCurve<T>& curve,
                            std::span<const T> x, std::span<const T> dy, std::span<const T> gamma,
                            const SquashCotangents<T>& cotangents, const SquashSecond<T>& out,
                            std::span<T> workspace);

namespace detail {

/// f'(z), to full relative precision where f itself is saturated.
[[nodiscard]] double squash_slope(Squash f, double z);

}  // namespace detail
}  // namespace steady
