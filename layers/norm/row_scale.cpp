#include <steadygrad/layers/norm/row_scale.hpp>

#include <array>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/norm/norm_measure.hpp>
#include <steadygrad/layers/norm/norm_op.hpp>

namespace steady::detail {
namespace {

struct Cut {
  RowScaleNames names;
  RowShape rows;
  std::int64_t counted;
};

Tensor workspace(const Cut& cut, Dtype dtype) {
  return Tensor::empty({row_scale_workspace(cut.rows)}, dtype);
}

/// Gradients of (dy, x, gain) from those of (dx, dgain).
std::array<Tensor, 3> double_backward(const Cut& cut, const BackwardCall& call) {
  const char* op = cut.names.double_backward;
  const Tensor &dy = call.saved(0), &x = call.saved(1), &gain = call.saved(2),
               &stats = call.saved(3);
  Tensor ddy = empty_if(call.needs(0), x.shape(), x.dtype());
  Tensor dx2 = empty_if(call.needs(1), x.shape(), x.dtype());
  Tensor dgain2 = empty_if(call.needs(2), gain.defined() ? gain.shape() : Shape{}, x.dtype());
  Tensor scratch = workspace(cut, x.dtype());
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    row_scale_double_backward<T>(cut.rows, cut.counted, elements<T>(x), elements<T>(dy),
                                 elements<T>(gain), elements<T>(stats), elements<T>(call.grad(0)),
                                 elements<T>(call.grad(1)), writable<T>(ddy, op),
                                 writable<T>(dx2, op), writable<T>(dgain2, op),
                                 writable<T>(scratch, op));
  });
  return record(op, std::array{ddy, dx2, dgain2}, {dy, x, gain, call.grad(0), call.grad(1)}, {},
                NoBackward{});
}

/// Gradients of (x, gain), those that are needed.
std::array<Tensor, 2> backward(const Cut& cut, const BackwardCall& call) {
  const char* op = cut.names.backward;
  const Tensor &dy = call.grad(), &x = call.saved(0), &gain = call.saved(1), &stats = call.saved(2);
  Tensor dx = empty_if(call.needs(0), x.shape(), x.dtype());
  Tensor dgain = empty_if(call.needs(1), gain.defined() ? gain.shape() : Shape{}, x.dtype());
  Tensor scratch = workspace(cut, x.dtype());
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    row_scale_backward<T>(cut.rows, cut.counted, elements<T>(x), elements<T>(dy), elements<T>(gain),
                          elements<T>(stats), writable<T>(dx, op), writable<T>(dgain, op),
                          writable<T>(scratch, op));
  });
  return record(op, std::array{dx, dgain}, {dy, x, gain}, {dy, x, gain, stats},
                [cut](BackwardCall& second) {
                  auto [ddy, dx2, dgain2] = double_backward(cut, second);
                  second.give(0, std::move(ddy));
                  second.give(1, std::move(dx2));
                  second.give(2, std::move(dgain2));
                });
}

}  // namespace

Tensor row_scale(const RowScaleNames& names, const Tensor& x, const Shape& normalized_shape,
                 const RowScaleRule& rule, const char* gain_name, const Tensor& gain,
                 const Shape& gain_shape) {
  const char* op = names.forward;
  check_norm_input(op, x);
  Cut cut{names, trailing_rows(op, x, normalized_shape), rule.counted};
  if (gain_shape.rank() == 0) cut.rows.affine = 1;
  RowPlan::check(op, cut.rows);
  check_norm_parameter(op, gain_name, gain, gain_shape, x);
  check_eps(op, rule.eps);
  const bool needed = needs_gradient(x) || needs_gradient(gain);
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  Tensor stats = empty_if(needed, {cut.rows.rows, 2}, x.dtype());
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    row_scale_forward<T>(cut.rows, rule, elements<T>(x), elements<T>(gain), writable<T>(y, op),
                         writable<T>(stats, op));
  });
  return record(op, y, {x, gain}, {x, gain, stats}, [cut](BackwardCall& call) {
    auto [dx, dgain] = backward(cut, call);
    call.give(0, std::move(dx));
    call.give(1, std::move(dgain));
  });
}

void measure_row_scale(const MeasureSink& sink, const Tensor& x, const Shape& normalized_shape,
                       const RowScaleRule& rule) {
  const RowShape rows = trailing_rows("measure", x, normalized_shape);
  Tensor normalized = Tensor::empty(x.shape(), x.dtype());
  Tensor stats = Tensor::empty({rows.rows, 2}, x.dtype());
  dispatch_float("measure", x.dtype(), [&]<FloatElement T>() {
    row_scale_forward<T>(rows, rule, x.data<T>(), {}, normalized.mutable_data<T>(),
                         stats.mutable_data<T>());
    measure_range<T>(sink, "scale", stats.data<T>(), 0, 2);
  });
  measure_normalized(sink, normalized);
}

}  // namespace steady::detail
