#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <steadygrad/core/kernels/elementwise.hpp>

/// The functions of Unary in double: value(x), first(s) and second(s), where s is x or y as
/// saves_output says. These are the float64 kernels and what the float32 ones are tested against.
namespace steady::kernels::formulas {

/// sigmoid(x) and 1 - sigmoid(x), both to full relative precision.
struct Logistic {
  double s;
  double c;
  explicit Logistic(double x) {
    const double e = std::exp(-std::abs(x));
    const double large = 1 / (1 + e);
    s = x >= 0 ? large : e * large;
    c = x >= 0 ? e * large : large;
  }
};

/// Beyond +-1000 every sigmoid below is saturated in double; products like x * sigmoid'(x) then
/// have their limit 0 instead of inf * 0.
inline double saturate(double x) { return x > 1000 ? 1000 : x < -1000 ? -1000 : x; }

struct Exp {
  double value(double x) const { return std::exp(x); }
  double first(double y) const { return y; }
  double second(double y) const { return y; }
};
struct Log {
  double value(double x) const { return std::log(x); }
  double first(double x) const { return 1 / x; }
  double second(double x) const { return -1 / x / x; }
};
struct Sqrt {
  double value(double x) const { return std::sqrt(x); }
  double first(double y) const { return 0.5 / y; }
  double second(double y) const { return -0.25 / y / y / y; }
};
struct Rsqrt {
  double value(double x) const { return 1 / std::sqrt(x); }
  double first(double x) const { return -0.5 / std::sqrt(x) / x; }
  double second(double x) const { return 0.75 / std::sqrt(x) / x / x; }
};
struct Abs {
  double value(double x) const { return std::abs(x); }
  double first(double x) const { return x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x; }
  double second(double) const { return 0; }
};
struct Neg {
  double value(double x) const { return -x; }
  double first(double) const { return -1; }
  double second(double) const { return 0; }
};
struct Reciprocal {
  double value(double x) const { return 1 / x; }
  double first(double x) const { return -1 / x / x; }
  double second(double x) const { return 2 / x / x / x; }
};
struct Square {
  double value(double x) const { return x * x; }
  double first(double x) const { return 2 * x; }
  double second(double) const { return 2; }
};
struct Clamp {
  double low;
  double high;
  double value(double x) const { return x < low ? low : x > high ? high : x; }
  double first(double x) const { return x >= low && x <= high ? 1 : 0; }
  double second(double) const { return 0; }
};
struct Tanh {
  double value(double x) const { return std::tanh(x); }
  double first(double y) const { return (1 - y) * (1 + y); }
  double second(double y) const { return -2 * y * (1 - y) * (1 + y); }
};
struct Sigmoid {
  double value(double x) const { return Logistic(x).s; }
  double first(double y) const { return y * (1 - y); }
  double second(double y) const { return y * (1 - y) * (1 - 2 * y); }
};
struct Relu {
  double value(double x) const { return x < 0 ? 0 : x; }
  double first(double y) const { return y <= 0 ? 0 : 1; }
  double second(double) const { return 0; }
};
struct LeakyRelu {
  double slope;
  double value(double x) const { return x > 0 ? x : slope * x; }
  double first(double x) const { return x > 0 ? 1 : slope; }
  double second(double) const { return 0; }
};
/// f = x Phi, f' = Phi + x phi, f'' = phi (2 - x^2) with phi(x) = exp(-x^2 / 2) / sqrt(2 pi).
struct GeluErf {
  static double phi(double x) {
    return std::exp(-0.5 * x * x) * (std::numbers::inv_sqrtpi / std::numbers::sqrt2);
  }
  static double cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
  double value(double x) const { return (x < 0 ? saturate(x) : x) * cdf(x); }
  double first(double x) const {
    const double z = saturate(x);
    return cdf(z) + z * phi(z);
  }
  double second(double x) const {
    const double z = saturate(x);
    return phi(z) * (2 - z * z);
  }
};
/// f = x s with s = sigmoid(g), g = 2 sqrt(2 / pi) (x + c x^3); s' = s (1 - s) g',
/// s'' = s (1 - s) ((1 - 2 s) g'^2 + g''); f' = s + x s', f'' = 2 s' + x s''.
struct GeluTanh {
  static constexpr double K = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  static constexpr double C = 0.044715;
  double value(double x) const {
    return (x < 0 ? saturate(x) : x) * Logistic(K * (x + C * x * x * x)).s;
  }
  double first(double x) const {
    const double z = saturate(x);
    const Logistic p(K * (z + C * z * z * z));
    return p.s + z * p.s * p.c * K * (1 + 3 * C * z * z);
  }
  double second(double x) const {
    const double z = saturate(x);
    const Logistic p(K * (z + C * z * z * z));
    const double g1 = K * (1 + 3 * C * z * z);
    const double g2 = 6 * K * C * z;
    return p.s * p.c * (2 * g1 + z * ((p.c - p.s) * g1 * g1 + g2));
  }
};
/// f = x s, f' = s (1 + x (1 - s)), f'' = s (1 - s) (2 + x (1 - 2 s)).
struct Silu {
  double value(double x) const { return (x < 0 ? saturate(x) : x) * Logistic(x).s; }
  double first(double x) const {
    const double z = saturate(x);
    const Logistic p(z);
    return p.s * (1 + z * p.c);
  }
  double second(double x) const {
    const double z = saturate(x);
    const Logistic p(z);
    return p.s * p.c * (2 + z * (p.c - p.s));
  }
};
struct Softplus {
  double beta;
  double threshold;
  double value(double x) const {
    const double z = beta * x;
    if (z > threshold) return x;
    return ((z > 0 ? z : 0) + std::log1p(std::exp(-std::abs(z)))) / beta;
  }
  double first(double x) const { return beta * x > threshold ? 1 : Logistic(beta * x).s; }
  double second(double x) const {
    if (beta * x > threshold) return 0;
    const Logistic p(beta * x);
    return beta * p.s * p.c;
  }
};
/// A zero coefficient gives 0 also where the power is infinite (0^-1).
struct Pow {
  double p;
  double value(double x) const { return std::pow(x, p); }
  double first(double x) const { return p == 0 ? 0 : p * std::pow(x, p - 1); }
  double second(double x) const { return p == 0 || p == 1 ? 0 : p * (p - 1) * std::pow(x, p - 2); }
};

/// Calls body(formula) with the struct of `op`.
template <class Body>
void visit(Unary op, double p0, double p1, Body&& body) {
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
      return body(Pow{p0});
  }
}

}  // namespace steady::kernels::formulas
