#include <algorithm>
#include <array>
#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/elementwise.hpp>
#include <steadygrad/core/parallel.hpp>

namespace steady::kernels {
namespace {

constexpr std::int64_t Chunk = 32768;

template <class A, class B>
void check_sizes(const char* op, std::span<const A> x, std::span<B> y) {
  STEADY_CHECK(Error, x.size() == y.size(), "{}: input and output differ in size; got {} and {}",
               op, x.size(), y.size());
}

void check_operand(const char* op, const Broadcast& plan, int operand, std::size_t size) {
  const std::int64_t want = plan.size[static_cast<std::size_t>(operand)];
  STEADY_CHECK(Error, static_cast<std::int64_t>(size) == want,
               "{}: operand {} must hold {} elements; got {}", op, operand, want, size);
}

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct Sub {
  template <class T>
  T operator()(T a, T b) const {
    return a - b;
  }
};
struct Mul {
  template <class T>
  T operator()(T a, T b) const {
    return a * b;
  }
};
struct Div {
  template <class T>
  T operator()(T a, T b) const {
    return a / b;
  }
};
struct Pow {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
};
struct Maximum {
  template <class T>
  T operator()(T a, T b) const {
    const T larger = a > b ? a : b;  // b when either is NaN
    return a != a ? a : larger;
  }
};
struct Minimum {
  template <class T>
  T operator()(T a, T b) const {
    const T smaller = a < b ? a : b;
    return a != a ? a : smaller;
  }
};

/// One row: sa and sb are 0 or 1.
template <class T, class F>
void row(F f, const T* a, std::int64_t sa, const T* b, std::int64_t sb, T* y, std::int64_t n) {
  if (sa != 0 && sb != 0) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = f(a[i], b[i]);
  } else if (sa != 0) {
    const T value = *b;
    for (std::int64_t i = 0; i < n; ++i) y[i] = f(a[i], value);
  } else if (sb != 0) {
    const T value = *a;
    for (std::int64_t i = 0; i < n; ++i) y[i] = f(value, b[i]);
  } else {
    std::fill_n(y, n, f(*a, *b));
  }
}

/// One row of where; a step is 0 or 1.
template <std::int64_t C, std::int64_t A, std::int64_t B, class T>
void select(const T* c, const T* a, const T* b, T* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T yes = a[i * A];
    const T no = b[i * B];
    y[i] = c[i * C] != 0 ? yes : no;
  }
}

/// The select for the steps of condition, a and b.
template <class T>
auto select_for(std::int64_t c, std::int64_t a, std::int64_t b) {
  using Select = void (*)(const T*, const T*, const T*, T*, std::int64_t);
  constexpr std::array<Select, 8> table = {
      select<0, 0, 0, T>, select<0, 0, 1, T>, select<0, 1, 0, T>, select<0, 1, 1, T>,
      select<1, 0, 0, T>, select<1, 0, 1, T>, select<1, 1, 0, T>, select<1, 1, 1, T>};
  return table[static_cast<std::size_t>(4 * c + 2 * a + b)];
}

template <class T, class F>
void binary_rows(F f, const Broadcast& plan, std::span<const T> a, std::span<const T> b,
                 std::span<T> y) {
  const auto last = static_cast<std::size_t>(plan.rank - 1);
  parallel_for(plan.numel, Chunk, [&](std::int64_t begin, std::int64_t end) {
    for_each_row(plan, begin, end, [&](std::int64_t to, const auto& from, std::int64_t count) {
      row(f, a.data() + from[0], plan.stride[0][last], b.data() + from[1], plan.stride[1][last],
          y.data() + to, count);
    });
  });
}

/// The same for operands that are whole or one element.
template <class T, class F>
void binary_flat(F f, std::span<const T> a, std::span<const T> b, std::span<T> y) {
  const std::int64_t n = std::ssize(y);
  const std::int64_t sa = std::ssize(a) == n ? 1 : 0;
  const std::int64_t sb = std::ssize(b) == n ? 1 : 0;
  parallel_for(n, Chunk, [&](std::int64_t begin, std::int64_t end) {
    row(f, a.data() + begin * sa, sa, b.data() + begin * sb, sb, y.data() + begin, end - begin);
  });
}

/// run(f) with the formula of `op`.
template <class Run>
void with_formula(Binary op, const Run& run) {
  switch (op) {
    case Binary::Add:
      return run(Add{});
    case Binary::Sub:
      return run(Sub{});
    case Binary::Mul:
      return run(Mul{});
    case Binary::Div:
      return run(Div{});
    case Binary::Pow:
      return run(Pow{});
    case Binary::Maximum:
      return run(Maximum{});
    case Binary::Minimum:
      return run(Minimum{});
  }
}

}  // namespace

const char* name(Binary op) {
  switch (op) {
    case Binary::Add:
      return "add";
    case Binary::Sub:
      return "sub";
    case Binary::Mul:
      return "mul";
    case Binary::Div:
      return "div";
    case Binary::Pow:
      return "pow";
    case Binary::Maximum:
      return "maximum";
    case Binary::Minimum:
      return "minimum";
  }
  return "binary";
}

template <class T>
void binary(Binary op, const Broadcast& plan, std::span<const T> a, std::span<const T> b,
            std::span<T> y) {
  STEADY_CHECK(Error, plan.operands == 2 && std::ssize(y) == plan.numel,
               "{}: the plan must have 2 operands and the result its size; got {} and {} of {}",
               name(op), plan.operands, y.size(), plan.numel);
  check_operand(name(op), plan, 0, a.size());
  check_operand(name(op), plan, 1, b.size());
  with_formula(op, [&](auto f) { binary_rows(f, plan, a, b, y); });
}

template <class T>
void binary(Binary op, std::span<const T> a, std::span<const T> b, std::span<T> y) {
  const auto fits = [&](std::span<const T> operand) {
    return operand.size() == y.size() || operand.size() == 1;
  };
  STEADY_CHECK(Error, fits(a) && fits(b),
               "{}: operands must have the size of the result or one element; got {} and {}, "
               "result {}",
               name(op), a.size(), b.size(), y.size());
  with_formula(op, [&](auto f) { binary_flat(f, a, b, y); });
}

template <class T>
void where(const Broadcast& plan, std::span<const T> condition, std::span<const T> a,
           std::span<const T> b, std::span<T> y) {
  STEADY_CHECK(Error, plan.operands == 3 && std::ssize(y) == plan.numel,
               "where: the plan must have 3 operands and the result its size; got {} and {} of {}",
               plan.operands, y.size(), plan.numel);
  check_operand("where", plan, 0, condition.size());
  check_operand("where", plan, 1, a.size());
  check_operand("where", plan, 2, b.size());
  const auto last = static_cast<std::size_t>(plan.rank - 1);
  const auto run = select_for<T>(plan.stride[0][last], plan.stride[1][last], plan.stride[2][last]);
  parallel_for(plan.numel, Chunk, [&](std::int64_t begin, std::int64_t end) {
    for_each_row(plan, begin, end, [&](std::int64_t to, const auto& from, std::int64_t count) {
      run(condition.data() + from[0], a.data() + from[1], b.data() + from[2], y.data() + to, count);
    });
  });
}

template <class T>
void axpy(double alpha, std::span<const T> x, std::span<T> y) {
  check_sizes("axpy", x, y);
  parallel_for(std::ssize(y), Chunk, [&](std::int64_t begin, std::int64_t end) {
    const T factor = static_cast<T>(alpha);  // local, as the pointers: else nothing is vectorised
    const T* in = x.data();
    T* out = y.data();
    for (std::int64_t i = begin; i < end; ++i) out[i] += factor * in[i];
  });
}

template <class T>
void scale(double alpha, std::span<const T> x, std::span<T> y) {
  check_sizes("scale", x, y);
  parallel_for(std::ssize(y), Chunk, [&](std::int64_t begin, std::int64_t end) {
    const T factor = static_cast<T>(alpha);
    const T* in = x.data();
    T* out = y.data();
    for (std::int64_t i = begin; i < end; ++i) out[i] = factor * in[i];
  });
}

template <class T>
void fill(T value, std::span<T> y) {
  parallel_for(std::ssize(y), Chunk, [&](std::int64_t begin, std::int64_t end) {
    std::fill(y.begin() + begin, y.begin() + end, value);
  });
}

template <class T>
void copy(std::span<const T> x, std::span<T> y) {
  check_sizes("copy", x, y);
  parallel_for(std::ssize(y), Chunk, [&](std::int64_t begin, std::int64_t end) {
    std::copy(x.begin() + begin, x.begin() + end, y.begin() + begin);
  });
}

template <class From, class To>
void convert(std::span<const From> x, std::span<To> y) {
  check_sizes("convert", x, y);
  parallel_for(std::ssize(y), Chunk, [&](std::int64_t begin, std::int64_t end) {
    const From* in = x.data();
    To* out = y.data();
    for (std::int64_t i = begin; i < end; ++i) out[i] = static_cast<To>(in[i]);
  });
}

template void binary(Binary, std::span<const float>, std::span<const float>, std::span<float>);
template void binary(Binary, const Broadcast&, std::span<const float>, std::span<const float>,
                     std::span<float>);
template void where(const Broadcast&, std::span<const float>, std::span<const float>,
                    std::span<const float>, std::span<float>);
template void axpy(double, std::span<const float>, std::span<float>);
template void scale(double, std::span<const float>, std::span<float>);
template void binary(Binary, std::span<const double>, std::span<const double>, std::span<double>);
template void binary(Binary, const Broadcast&, std::span<const double>, std::span<const double>,
                     std::span<double>);
template void where(const Broadcast&, std::span<const double>, std::span<const double>,
                    std::span<const double>, std::span<double>);
template void axpy(double, std::span<const double>, std::span<double>);
template void scale(double, std::span<const double>, std::span<double>);
template void fill(float, std::span<float>);
template void copy(std::span<const float>, std::span<float>);
template void fill(double, std::span<double>);
template void copy(std::span<const double>, std::span<double>);
template void fill(std::int32_t, std::span<std::int32_t>);
template void copy(std::span<const std::int32_t>, std::span<std::int32_t>);
template void fill(std::int64_t, std::span<std::int64_t>);
template void copy(std::span<const std::int64_t>, std::span<std::int64_t>);
template void convert(std::span<const float>, std::span<double>);
template void convert(std::span<const float>, std::span<std::int32_t>);
template void convert(std::span<const float>, std::span<std::int64_t>);
template void convert(std::span<const double>, std::span<float>);
template void convert(std::span<const double>, std::span<std::int32_t>);
template void convert(std::span<const double>, std::span<std::int64_t>);
template void convert(std::span<const std::int32_t>, std::span<float>);
template void convert(std::span<const std::int32_t>, std::span<double>);
template void convert(std::span<const std::int32_t>, std::span<std::int64_t>);
template void convert(std::span<const std::int64_t>, std::span<float>);
template void convert(std::span<const std::int64_t>, std::span<double>);
template void convert(std::span<const std::int64_t>, std::span<std::int32_t>);

}  // namespace steady::kernels
