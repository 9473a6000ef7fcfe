#include <steadygrad/core/ops/softmax.hpp>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/softmax.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady {
namespace {

// Everything here works on the rows of the last axis: p = softmax(x), l = log_softmax(x).

template <class Kernel>
Tensor by_rows(const char* op, const Tensor& like, const Kernel& kernel) {
  Tensor y = Tensor::empty(like.shape(), like.dtype());
  const std::int64_t width = like.dim(-1);
  const std::int64_t rows = width == 0 ? 0 : like.numel() / width;
  dispatch_float(op, like.dtype(),
                 [&]<FloatElement T>() { kernel(y.mutable_data<T>(op), rows, width); });
  return y;
}

Tensor row_sum(const Tensor& x) { return sum(x, {-1}, /*keepdim=*/true); }

/// dx = p * (dy - sum(dy * p)).
Tensor softmax_gradient(const Tensor& dy, const Tensor& p) {
  const Tensor dx =
      by_rows("softmax backward", dy,
              [&]<class T>(std::span<T> out, std::int64_t rows, std::int64_t width) {
                kernels::softmax_backward<T>(dy.data<T>(), p.data<T>(), rows, width, out);
              });
  return record("softmax_gradient", dx, {dy, p}, {dy, p}, [](BackwardCall& call) {
    const Tensor& v = call.grad();
    const Tensor& g = call.saved(0);
    const Tensor& y = call.saved(1);
    // The Jacobian of softmax is symmetric.
    call.give(0, [&] { return softmax_gradient(v, y); });
    call.give(1, [&] { return v * (g - row_sum(g * y)) - g * row_sum(v * y); });
  });
}

Tensor softmax_rows(const Tensor& x) {
  const Tensor y =
      by_rows("softmax", x, [&]<class T>(std::span<T> out, std::int64_t rows, std::int64_t width) {
        kernels::softmax<T>(x.data<T>(), rows, width, out);
      });
  return record("softmax", y, {x}, {y}, [](BackwardCall& call) {
    call.give(0, [&] { return softmax_gradient(call.grad(), call.saved(0)); });
  });
}

/// dx = dy - exp(l) * sum(dy).
Tensor log_softmax_gradient(const Tensor& dy, const Tensor& l) {
  const Tensor dx =
      by_rows("log_softmax backward", dy,
              [&]<class T>(std::span<T> out, std::int64_t rows, std::int64_t width) {
                kernels::log_softmax_backward<T>(dy.data<T>(), l.data<T>(), rows, width, out);
              });
  return record("log_softmax_gradient", dx, {dy, l}, {dy, l}, [](BackwardCall& call) {
    const Tensor& v = call.grad();
    const Tensor vp = v * exp(call.saved(1));
    call.give(0, [&] { return v - row_sum(vp); });
    call.give(1, [&] { return -(vp * row_sum(call.saved(0))); });
  });
}

Tensor log_softmax_rows(const Tensor& x) {
  const Tensor y = by_rows("log_softmax", x,
                           [&]<class T>(std::span<T> out, std::int64_t rows, std::int64_t width) {
                             kernels::log_softmax<T>(x.data<T>(), rows, width, out);
                           });
  return record("log_softmax", y, {x}, {y}, [](BackwardCall& call) {
    call.give(0, [&] { return log_softmax_gradient(call.grad(), call.saved(0)); });
  });
}

Tensor along(const char* op, const Tensor& x, int axis, Tensor (*rows)(const Tensor&)) {
  check_defined(op, "x", x);
  STEADY_CHECK(ShapeError, x.rank() >= 1 && is_float(x.dtype()),
               "{}: needs f32 or f64 with an axis; got x {}", op, describe(x));
  const int a = x.shape().axis(axis, op);
  if (a == x.rank() - 1) return rows(x);
  return transpose(rows(transpose(x, a, -1)), a, -1);
}

}  // namespace

Tensor softmax(const Tensor& x, int axis) { return along("softmax", x, axis, softmax_rows); }

Tensor log_softmax(const Tensor& x, int axis) {
  return along("log_softmax", x, axis, log_softmax_rows);
}

}  // namespace steady
