#include <steadygrad/layers/norm/squash.hpp>

#include <array>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/norm/norm_op.hpp>

namespace steady::detail {
namespace {

struct SquashCut {
  SquashNames names;
  Squash f;
  RowShape rows;
  Shape parameter;
};

// Where the saved tensors and the inputs stand.
enum { X, Alpha, Shift, Weight, Bias };

template <FloatElement T>
T number(const Tensor& scalar, T otherwise) {
  return scalar.defined() ? scalar.data<T>()[0] : otherwise;
}

template <FloatElement T>
SquashCurve<T> curve(const SquashCut& cut, const Tensor& alpha, const Tensor& shift) {
  return {cut.f, number<T>(alpha, T(1)), number<T>(shift, T(0))};
}

Tensor workspace(const SquashCut& cut, Dtype dtype) {
  return Tensor::empty({squash_workspace(cut.rows)}, dtype);
}

/// Gradients of (dy, x, alpha, shift, weight) from those of (dx, dalpha, dshift, dweight, dbias).
std::array<Tensor, 5> double_backward(const SquashCut& cut, const BackwardCall& call) {
  const char* op = cut.names.double_backward;
  const Tensor &x = call.saved(X), &alpha = call.saved(Alpha), &shift = call.saved(Shift),
               &weight = call.saved(Weight), &dy = call.saved(4);
  const Dtype dtype = x.dtype();
  Tensor ddy = empty_if(call.needs(0), x.shape(), dtype);
  Tensor dx2 = empty_if(call.needs(1), x.shape(), dtype);
  Tensor dalpha2 = empty_if(call.needs(2), {1}, dtype);
  Tensor dshift2 = empty_if(call.needs(3), {1}, dtype);
  Tensor dweight2 = empty_if(call.needs(4), cut.parameter, dtype);
  Tensor scratch = workspace(cut, dtype);
  dispatch_float(op, dtype, [&]<FloatElement T>() {
    const SquashCotangents<T> cotangents{.dx = elements<T>(call.grad(X)),
                                         .dgamma = elements<T>(call.grad(Weight)),
                                         .dbeta = elements<T>(call.grad(Bias)),
                                         .dalpha = elements<T>(call.grad(Alpha)),
                                         .dshift = elements<T>(call.grad(Shift))};
    const SquashSecond<T> out{.ddy = writable<T>(ddy, op),
                              .dx2 = writable<T>(dx2, op),
                              .dgamma2 = writable<T>(dweight2, op),
                              .dalpha2 = writable<T>(dalpha2, op),
                              .dshift2 = writable<T>(dshift2, op)};
    squash_double_backward<T>(cut.rows, curve<T>(cut, alpha, shift), elements<T>(x),
                              elements<T>(dy), elements<T>(weight), cotangents, out,
                              writable<T>(scratch, op));
  });
  return record(op, std::array{ddy, dx2, dalpha2, dshift2, dweight2},
                {dy, x, alpha, shift, weight, call.grad(X), call.grad(Alpha), call.grad(Shift),
                 call.grad(Weight), call.grad(Bias)},
                {}, NoBackward{});
}

/// Gradients of (x, alpha, shift, weight, bias), those that are needed.
std::array<Tensor, 5> backward(const SquashCut& cut, const BackwardCall& call) {
  const char* op = cut.names.backward;
  const Tensor &dy = call.grad(), &x = call.saved(X), &alpha = call.saved(Alpha),
               &shift = call.saved(Shift), &weight = call.saved(Weight);
  const Dtype dtype = x.dtype();
  Tensor dx = empty_if(call.needs(X), x.shape(), dtype);
  Tensor dalpha = empty_if(call.needs(Alpha), {1}, dtype);
  Tensor dshift = empty_if(call.needs(Shift), {1}, dtype);
  Tensor dweight = empty_if(call.needs(Weight), cut.parameter, dtype);
  Tensor dbias = empty_if(call.needs(Bias), cut.parameter, dtype);
  Tensor scratch = workspace(cut, dtype);
  dispatch_float(op, dtype, [&]<FloatElement T>() {
    const SquashGradients<T> out{.dx = writable<T>(dx, op),
                                 .dgamma = writable<T>(dweight, op),
                                 .dbeta = writable<T>(dbias, op),
                                 .dalpha = writable<T>(dalpha, op),
                                 .dshift = writable<T>(dshift, op)};
    squash_backward<T>(cut.rows, curve<T>(cut, alpha, shift), elements<T>(x), elements<T>(dy),
                       elements<T>(weight), out, writable<T>(scratch, op));
  });
  return record(op, std::array{dx, dalpha, dshift, dweight, dbias}, {dy, x, alpha, shift, weight},
                {x, alpha, shift, weight, dy}, [cut](BackwardCall& second) {
                  std::array<Tensor, 5> gradients = double_backward(cut, second);
                  for (int i = 0; i < 5; ++i) {
                    second.give(i, std::move(gradients[static_cast<std::size_t>(i)]));
                  }
                });
}

}  // namespace

Tensor squash(const SquashNames& names, Squash f, const Tensor& x, const Shape& normalized_shape,
              const SquashParameters& p) {
  const char* op = names.forward;
  check_norm_input(op, x);
  const SquashCut cut{names, f, trailing_rows(op, x, normalized_shape), normalized_shape};
  RowPlan::check(op, cut.rows);
  check_defined(op, "alpha", p.alpha);
  check_norm_parameter(op, "alpha", p.alpha, {1}, x);
  check_norm_parameter(op, "shift", p.shift, {1}, x);
  check_norm_parameter(op, "weight", p.weight, normalized_shape, x);
  check_norm_parameter(op, "bias", p.bias, normalized_shape, x);
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    squash_forward<T>(cut.rows, curve<T>(cut, p.alpha, p.shift), elements<T>(x),
                      elements<T>(p.weight), elements<T>(p.bias), writable<T>(y, op));
  });
  return record(op, y, {x, p.alpha, p.shift, p.weight, p.bias}, {x, p.alpha, p.shift, p.weight},
                [cut](BackwardCall& call) {
                  std::array<Tensor, 5> gradients = backward(cut, call);
                  for (int i = 0; i < 5; ++i) {
                    call.give(i, std::move(gradients[static_cast<std::size_t>(i)]));
                  }
                });
}

}  // namespace steady::detail
