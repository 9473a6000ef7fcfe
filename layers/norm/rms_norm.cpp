#include <steadygrad/layers/norm/rms_norm.hpp>

#include <array>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/norm/norm_kinds.hpp>
#include <steadygrad/layers/norm/norm_measure.hpp>
#include <steadygrad/layers/norm/norm_op.hpp>
#include <steadygrad/layers/norm/rms_norm_kernel.hpp>
#include <steadygrad/layers/norm/simulated_norm.hpp>

namespace steady {
namespace {

using detail::elements;
using detail::empty_if;
using detail::writable;

struct Cut {
  RowShape rows;
  Shape parameter;
  bool unit_offset;
};

Tensor workspace(const Cut& cut, Dtype dtype) {
  return Tensor::empty({rms_norm_workspace(cut.rows)}, dtype);
}

/// Gradients of (dy, x, weight) from those of (dx, dweight).
std::array<Tensor, 3> double_backward(const Cut& cut, const BackwardCall& call) {
  const char* op = "rms_norm_double_backward";
  const Tensor &dy = call.saved(0), &x = call.saved(1), &weight = call.saved(2),
               &stats = call.saved(3);
  Tensor ddy = empty_if(call.needs(0), x.shape(), x.dtype());
  Tensor dx2 = empty_if(call.needs(1), x.shape(), x.dtype());
  Tensor dweight2 = empty_if(call.needs(2), cut.parameter, x.dtype());
  Tensor scratch = workspace(cut, x.dtype());
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    rms_norm_double_backward<T>(cut.rows, cut.unit_offset, elements<T>(x), elements<T>(dy),
                                elements<T>(weight), elements<T>(stats), elements<T>(call.grad(0)),
                                elements<T>(call.grad(1)), writable<T>(ddy, op),
                                writable<T>(dx2, op), writable<T>(dweight2, op),
                                writable<T>(scratch, op));
  });
  return record(op, std::array{ddy, dx2, dweight2}, {dy, x, weight, call.grad(0), call.grad(1)}, {},
                NoBackward{});
}

struct Needs {
  bool x, weight;
};

/// Gradients of (x, weight), those that are needed; not recorded. `residual`, when defined, is
/// another gradient of x, which is added.
std::array<Tensor, 2> gradients(const Cut& cut, const Needs& needs, const Tensor& dy,
                                const Tensor& x, const Tensor& weight, const Tensor& stats,
                                const Tensor& residual = {}) {
  const char* op = "rms_norm_backward";
  Tensor dx = empty_if(needs.x, x.shape(), x.dtype());
  Tensor dweight = empty_if(needs.weight, cut.parameter, x.dtype());
  Tensor scratch = workspace(cut, x.dtype());
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    rms_norm_backward<T>(cut.rows, cut.unit_offset, elements<T>(x), elements<T>(dy),
                         elements<T>(weight), elements<T>(stats), writable<T>(dx, op),
                         writable<T>(dweight, op), writable<T>(scratch, op), elements<T>(residual));
  });
  return {dx, dweight};
}

/// The same without a residual, as an operation.
std::array<Tensor, 2> backward(const Cut& cut, const Needs& needs, const Tensor& dy,
                               const Tensor& x, const Tensor& weight, const Tensor& stats) {
  return record("rms_norm_backward", gradients(cut, needs, dy, x, weight, stats), {dy, x, weight},
                {dy, x, weight, stats}, [cut](BackwardCall& second) {
                  auto [ddy, dx2, dweight2] = double_backward(cut, second);
                  second.give(0, std::move(ddy));
                  second.give(1, std::move(dx2));
                  second.give(2, std::move(dweight2));
                });
}

/// Inputs left, right, weight; saved sum, weight, stats; outputs sum, y.
void add_backward(const Cut& cut, BackwardCall& call) {
  const Tensor &dsum = call.grad(0), &dy = call.grad(1);
  Tensor d = dsum;
  if (dy.defined()) {
    const Needs needs{call.needs(0) || call.needs(1), call.needs(2)};
    const Tensor &sum = call.saved(0), &weight = call.saved(1), &stats = call.saved(2);
    std::array<Tensor, 2> g =
        recording() ? backward(cut, needs, dy, sum, weight, stats)
                    : gradients(cut, needs, dy, sum, weight, stats, needs.x ? dsum : Tensor());
    d = recording() && needs.x && dsum.defined() ? dsum + g[0] : g[0];
    call.give(2, std::move(g[1]));
  }
  call.give(0, d);
  call.give(1, std::move(d));
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, double eps,
                bool unit_offset) {
  const char* op = "rms_norm";
  detail::check_norm_input(op, x);
  const Cut cut{detail::trailing_rows(op, x, normalized_shape), normalized_shape, unit_offset};
  detail::RowPlan::check(op, cut.rows);
  detail::check_norm_parameter(op, "weight", weight, cut.parameter, x);
  detail::check_eps(op, eps);
  const bool needed = needs_gradient(x) || needs_gradient(weight);
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  Tensor stats = empty_if(needed, {cut.rows.rows}, x.dtype());
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    rms_norm_forward<T>(cut.rows, eps, unit_offset, elements<T>(x), elements<T>(weight),
                        writable<T>(y, op), writable<T>(stats, op));
  });
  return record(op, y, {x, weight}, {x, weight, stats}, [cut](BackwardCall& call) {
    auto [dx, dweight] = backward(cut, {call.needs(0), call.needs(1)}, call.grad(), call.saved(0),
                                  call.saved(1), call.saved(2));
    call.give(0, std::move(dx));
    call.give(1, std::move(dweight));
  });
}

SumAndNorm add_rms_norm(const Tensor& left, const Tensor& right, const Shape& normalized_shape,
                        const Tensor& weight, double eps, bool unit_offset) {
  const char* op = "add_rms_norm";
  detail::check_summands(op, left, right);
  const Cut cut{detail::trailing_rows(op, left, normalized_shape), normalized_shape, unit_offset};
  detail::RowPlan::check(op, cut.rows);
  detail::check_norm_parameter(op, "weight", weight, cut.parameter, left);
  detail::check_eps(op, eps);
  const bool needed = needs_gradient(left) || needs_gradient(right) || needs_gradient(weight);
  Tensor sum = Tensor::empty(left.shape(), left.dtype());
  Tensor y = Tensor::empty(left.shape(), left.dtype());
  Tensor stats = empty_if(needed, {cut.rows.rows}, left.dtype());
  dispatch_float(op, left.dtype(), [&]<FloatElement T>() {
    add_rms_norm_forward<T>(cut.rows, eps, unit_offset, elements<T>(left), elements<T>(right),
                            elements<T>(weight), writable<T>(sum, op), writable<T>(y, op),
                            writable<T>(stats, op));
  });
  auto [s, n] = record(op, std::array{sum, y}, {left, right, weight}, {sum, weight, stats},
                       [cut](BackwardCall& call) { add_backward(cut, call); });
  return {std::move(s), std::move(n)};
}

namespace {

const RmsNorm::Options& checked(const RmsNorm::Options& o) {
  detail::check_eps("RmsNorm", o.eps);
  STEADY_CHECK(ShapeError, o.normalized_shape.rank() >= 1 && o.normalized_shape.numel() >= 1,
               "RmsNorm: normalized_shape needs one axis or more and no extent below 1; got {}",
               to_string(o.normalized_shape));
  STEADY_CHECK(Error, o.affine || !o.unit_offset,
               "RmsNorm: unit_offset is about the weight, which affine = false takes away");
  return o;
}

}  // namespace

RmsNorm::RmsNorm(const Options& options)
    : o(checked(options)),
      weight(add_parameter("weight", Tensor::full(o.normalized_shape, o.unit_offset ? 0.0 : 1.0),
                           Role::NormScale, o.affine)) {}

Tensor RmsNorm::forward(const Tensor& x) {
  return rms_norm(x, o.normalized_shape, weight, o.eps, o.unit_offset);
}

SumAndNorm RmsNorm::of_sum(const Tensor& x, const Tensor& added) {
  SumAndNorm result;
  (void)run(x, [&](const Tensor& left) {
    result = add_rms_norm(left, added, o.normalized_shape, weight, o.eps, o.unit_offset);
    return result.norm;
  });
  return result;
}

void RmsNorm::measure(const Tensor& x, const MeasureSink& sink) const {
  const RowShape rows = detail::trailing_rows("RmsNorm", x, o.normalized_shape);
  Tensor normalized = Tensor::empty(x.shape(), x.dtype());
  Tensor stats = Tensor::empty({rows.rows}, x.dtype());
  dispatch_float("RmsNorm", x.dtype(), [&]<FloatElement T>() {
    rms_norm_forward<T>(rows, o.eps, false, x.data<T>(), {}, normalized.mutable_data<T>(),
                        stats.mutable_data<T>());
    detail::measure_range<T>(sink, "rstd", stats.data<T>(), 0, 1);
  });
  detail::measure_normalized(sink, normalized);
}

std::string RmsNorm::describe() const {
  return fmt::format("RmsNorm({}, eps={}{})", to_string(o.normalized_shape), o.eps,
                     !o.affine       ? ", affine=false"
                     : o.unit_offset ? ", unit_offset=true"
                                     : "");
}

namespace detail {

NormKind rms_kind() {
  return {
      "rms(eps=1e-6[0..], affine=true, unit_offset=false, simulate=none|bf16|fp16, "
      "accumulate=f32|same, cast=after|before)",
      [](const NormOptions& options, std::int64_t features) {
        return make_norm_in_precision<RmsNorm>(options,
                                               {.normalized_shape = {features},
                                                .eps = options.number("eps"),
                                                .affine = options.flag("affine"),
                                                .unit_offset = options.flag("unit_offset")});
      }};
}

}  // namespace detail
}  // namespace steady
