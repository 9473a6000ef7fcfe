#include <algorithm>
#include <array>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/elementwise.hpp>
#include <steadygrad/core/kernels/unary_formulas.hpp>
#include <steadygrad/core/kernels/unary_simd.hpp>
#include <steadygrad/core/parallel.hpp>
#include <type_traits>

namespace steady::kernels {
namespace {

constexpr std::int64_t Chunk = 32768;

void check(Unary op, std::size_t in, std::size_t out, double p0, double p1) {
  STEADY_CHECK(Error, in == out, "{}: input and output differ in size; got {} and {}", name(op), in,
               out);
  STEADY_CHECK(Error, op != Unary::Clamp || p0 <= p1, "clamp: low must not exceed high; got {}, {}",
               p0, p1);
}

/// Powers that are another function of the same saved value.
Unary simplified(Unary op, double p0) {
  if (op != Unary::Pow) return op;
  return p0 == 2 ? Unary::Square : p0 == -1 ? Unary::Reciprocal : Unary::Pow;
}

}  // namespace

const char* name(Unary op) {
  switch (op) {
    case Unary::Exp:
      return "exp";
    case Unary::Log:
      return "log";
    case Unary::Sqrt:
      return "sqrt";
    case Unary::Rsqrt:
      return "rsqrt";
    case Unary::Abs:
      return "abs";
    case Unary::Neg:
      return "neg";
    case Unary::Reciprocal:
      return "reciprocal";
    case Unary::Square:
      return "square";
    case Unary::Clamp:
      return "clamp";
    case Unary::Tanh:
      return "tanh";
    case Unary::Sigmoid:
      return "sigmoid";
    case Unary::Relu:
      return "relu";
    case Unary::LeakyRelu:
      return "leaky_relu";
    case Unary::GeluErf:
      return "gelu_erf";
    case Unary::GeluTanh:
      return "gelu_tanh";
    case Unary::Silu:
      return "silu";
    case Unary::Softplus:
      return "softplus";
    case Unary::Pow:
      return "pow";
  }
  return "unary";
}

template <class T>
void unary(Unary op, std::span<const T> x, std::span<T> y, double p0, double p1) {
  check(op, x.size(), y.size(), p0, p1);
  op = simplified(op, p0);
  if constexpr (std::is_same_v<T, float>) {
    if (op != Unary::Pow) {
      parallel_for(std::ssize(x), Chunk, [&](std::int64_t begin, std::int64_t end) {
        unary_simd(op, x.data() + begin, y.data() + begin, end - begin, static_cast<float>(p0),
                   static_cast<float>(p1));
      });
      return;
    }
  }
  formulas::visit(op, p0, p1, [&](auto f) {
    parallel_for(std::ssize(x), Chunk, [&, f](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
        y[i] = static_cast<T>(f.value(x[i]));
    });
  });
}

template <class T>
void unary_backward(Unary op, std::span<const T> dy, std::span<const T> saved, std::span<T> dx,
                    double p0, double p1) {
  check(op, dy.size(), dx.size(), p0, p1);
  check(op, saved.size(), dx.size(), p0, p1);
  op = simplified(op, p0);
  if constexpr (std::is_same_v<T, float>) {
    if (op != Unary::Pow) {
      parallel_for(std::ssize(dx), Chunk, [&](std::int64_t begin, std::int64_t end) {
        unary_backward_simd(op, dy.data() + begin, saved.data() + begin, dx.data() + begin,
                            end - begin, static_cast<float>(p0), static_cast<float>(p1));
      });
      return;
    }
  }
  formulas::visit(op, p0, p1, [&](auto f) {
    parallel_for(std::ssize(dx), Chunk, [&, f](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
        dx[i] = static_cast<T>(dy[i] * f.first(saved[i]));
    });
  });
}

template <class T>
void unary_second(Unary op, std::span<const T> saved, std::span<T> out, double p0, double p1) {
  check(op, saved.size(), out.size(), p0, p1);
  formulas::visit(op, p0, p1, [&](auto f) {
    parallel_for(std::ssize(out), Chunk, [&, f](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
        out[i] = static_cast<T>(f.second(saved[i]));
    });
  });
}

namespace {

/// Elements whose intermediate results stay in the first-level cache.
constexpr std::int64_t Strip = 2048;

/// body(first, count) for strips of [0, size), in parallel.
template <class Body>
void for_gated_strips(std::int64_t size, const Body& body) {
  parallel_for(size, Chunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; i += Strip)
      body(static_cast<std::size_t>(i), static_cast<std::size_t>(std::min(Strip, end - i)));
  });
}

}  // namespace

template <class T>
void gated_product(Unary op, std::span<const T> x, std::span<const T> u, std::span<T> y) {
  check(op, x.size(), y.size(), 0, 0);
  check(op, u.size(), y.size(), 0, 0);
  for_gated_strips(std::ssize(y), [&](std::size_t first, std::size_t count) {
    std::array<T, Strip> f;
    unary<T>(op, x.subspan(first, count), std::span(f).first(count));
    for (std::size_t i = 0; i < count; ++i) y[first + i] = f[i] * u[first + i];
  });
}

template <class T>
void gated_product_backward(Unary op, std::span<const T> dy, std::span<const T> x,
                            std::span<const T> u, std::span<T> dx, std::span<T> du) {
  STEADY_CHECK(Error, !saves_output(op), "{}: no gate; its slope is a function of its output",
               name(op));
  check(op, x.size(), dy.size(), 0, 0);
  check(op, u.size(), dy.size(), 0, 0);
  if (!dx.empty()) check(op, dy.size(), dx.size(), 0, 0);
  if (!du.empty()) check(op, dy.size(), du.size(), 0, 0);
  for_gated_strips(std::ssize(dy), [&](std::size_t first, std::size_t count) {
    std::array<T, Strip> buffer;
    const std::span<T> f = std::span(buffer).first(count);
    if (!du.empty()) {
      unary<T>(op, x.subspan(first, count), f);
      for (std::size_t i = 0; i < count; ++i) du[first + i] = dy[first + i] * f[i];
    }
    if (!dx.empty()) {
      for (std::size_t i = 0; i < count; ++i) f[i] = dy[first + i] * u[first + i];
      unary_backward<T>(op, f, x.subspan(first, count), dx.subspan(first, count), 0, 0);
    }
  });
}

template void gated_product(Unary, std::span<const float>, std::span<const float>,
                            std::span<float>);
template void gated_product(Unary, std::span<const double>, std::span<const double>,
                            std::span<double>);
template void gated_product_backward(Unary, std::span<const float>, std::span<const float>,
                                     std::span<const float>, std::span<float>, std::span<float>);
template void gated_product_backward(Unary, std::span<const double>, std::span<const double>,
                                     std::span<const double>, std::span<double>, std::span<double>);
template void unary(Unary, std::span<const float>, std::span<float>, double, double);
template void unary(Unary, std::span<const double>, std::span<double>, double, double);
template void unary_backward(Unary, std::span<const float>, std::span<const float>,
                             std::span<float>, double, double);
template void unary_backward(Unary, std::span<const double>, std::span<const double>,
                             std::span<double>, double, double);
template void unary_second(Unary, std::span<const float>, std::span<float>, double, double);
template void unary_second(Unary, std::span<const double>, std::span<double>, double, double);

}  // namespace steady::kernels
