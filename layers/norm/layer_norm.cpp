#include <steadygrad/layers/norm/layer_norm.hpp>

#include <array>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/norm/layer_norm_kernel.hpp>
#include <steadygrad/layers/norm/norm_kinds.hpp>
#include <steadygrad/layers/norm/norm_measure.hpp>
#include <steadygrad/layers/norm/norm_op.hpp>
#include <steadygrad/layers/norm/simulated_norm.hpp>

namespace steady {
namespace {

using detail::elements;
using detail::empty_if;
using detail::writable;

/// How x is cut into rows, and the shape of its parameters.
struct Cut {
  RowShape rows;
  Shape parameter;
};

Tensor workspace(const Cut& cut, Dtype dtype) {
  return Tensor::empty({layer_norm_workspace(cut.rows)}, dtype);
}

/// Gradients of (dy, x, weight) from those of (dx, dweight, dbias), ddx and so on.
std::array<Tensor, 3> double_backward(const Cut& cut, const BackwardCall& call) {
  const char* op = "layer_norm_double_backward";
  const Tensor &dy = call.saved(0), &x = call.saved(1), &weight = call.saved(2),
               &stats = call.saved(3);
  Tensor ddy = empty_if(call.needs(0), x.shape(), x.dtype());
  Tensor dx2 = empty_if(call.needs(1), x.shape(), x.dtype());
  Tensor dweight2 = empty_if(call.needs(2), cut.parameter, x.dtype());
  Tensor scratch = workspace(cut, x.dtype());
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    layer_norm_double_backward<T>(cut.rows, elements<T>(x), elements<T>(dy), elements<T>(weight),
                                  elements<T>(stats), elements<T>(call.grad(0)),
                                  elements<T>(call.grad(1)), elements<T>(call.grad(2)),
                                  writable<T>(ddy, op), writable<T>(dx2, op),
                                  writable<T>(dweight2, op), writable<T>(scratch, op));
  });
  return record(op, std::array{ddy, dx2, dweight2},
                {dy, x, weight, call.grad(0), call.grad(1), call.grad(2)}, {}, NoBackward{});
}

struct Needs {
  bool x, weight, bias;
};

/// Gradients of (x, weight, bias), those that are needed; not recorded. `residual`, when defined,
/// is another gradient of x, which is added.
std::array<Tensor, 3> gradients(const Cut& cut, const Needs& needs, const Tensor& dy,
                                const Tensor& x, const Tensor& weight, const Tensor& stats,
                                const Tensor& residual = {}) {
  const char* op = "layer_norm_backward";
  Tensor dx = empty_if(needs.x, x.shape(), x.dtype());
  Tensor dweight = empty_if(needs.weight, cut.parameter, x.dtype());
  Tensor dbias = empty_if(needs.bias, cut.parameter, x.dtype());
  Tensor scratch = workspace(cut, x.dtype());
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    layer_norm_backward<T>(cut.rows, elements<T>(x), elements<T>(dy), elements<T>(weight),
                           elements<T>(stats), writable<T>(dx, op), writable<T>(dweight, op),
                           writable<T>(dbias, op), writable<T>(scratch, op), elements<T>(residual));
  });
  return {dx, dweight, dbias};
}

/// The same without a residual, as an operation.
std::array<Tensor, 3> backward(const Cut& cut, const Needs& needs, const Tensor& dy,
                               const Tensor& x, const Tensor& weight, const Tensor& stats) {
  return record("layer_norm_backward", gradients(cut, needs, dy, x, weight, stats), {dy, x, weight},
                {dy, x, weight, stats}, [cut](BackwardCall& second) {
                  auto [ddy, dx2, dweight2] = double_backward(cut, second);
                  second.give(0, std::move(ddy));
                  second.give(1, std::move(dx2));
                  second.give(2, std::move(dweight2));
                });
}

void check_parameters(const char* op, const Cut& cut, const Tensor& x, const Tensor& weight,
                      const Tensor& bias, double eps) {
  detail::RowPlan::check(op, cut.rows);
  detail::check_norm_parameter(op, "weight", weight, cut.parameter, x);
  detail::check_norm_parameter(op, "bias", bias, cut.parameter, x);
  detail::check_eps(op, eps);
}

Tensor forward(const char* op, const Cut& cut, const Tensor& x, const Tensor& weight,
               const Tensor& bias, double eps) {
  check_parameters(op, cut, x, weight, bias, eps);
  const bool needed = needs_gradient(x) || needs_gradient(weight) || needs_gradient(bias);
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  Tensor stats = empty_if(needed, {cut.rows.rows, 3}, x.dtype());
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    layer_norm_forward<T>(cut.rows, eps, elements<T>(x), elements<T>(weight), elements<T>(bias),
                          writable<T>(y, op), writable<T>(stats, op));
  });
  return record("layer_norm", y, {x, weight, bias}, {x, weight, stats}, [cut](BackwardCall& call) {
    auto [dx, dweight, dbias] = backward(cut, {call.needs(0), call.needs(1), call.needs(2)},
                                         call.grad(), call.saved(0), call.saved(1), call.saved(2));
    call.give(0, std::move(dx));
    call.give(1, std::move(dweight));
    call.give(2, std::move(dbias));
  });
}

/// Inputs left, right, weight, bias; saved sum, weight, stats; outputs sum, y.
void add_backward(const Cut& cut, BackwardCall& call) {
  const Tensor &dsum = call.grad(0), &dy = call.grad(1);
  Tensor d = dsum, dweight, dbias;
  if (dy.defined()) {
    const Needs needs{call.needs(0) || call.needs(1), call.needs(2), call.needs(3)};
    const Tensor &sum = call.saved(0), &weight = call.saved(1), &stats = call.saved(2);
    if (recording()) {
      std::array<Tensor, 3> g = backward(cut, needs, dy, sum, weight, stats);
      d = dsum.defined() && needs.x ? dsum + g[0] : g[0];
      dweight = g[1];
      dbias = g[2];
    } else {
      std::array<Tensor, 3> g =
          gradients(cut, needs, dy, sum, weight, stats, needs.x ? dsum : Tensor());
      d = g[0];
      dweight = g[1];
      dbias = g[2];
    }
    call.give(2, std::move(dweight));
    call.give(3, std::move(dbias));
  }
  call.give(0, d);
  call.give(1, std::move(d));
}

}  // namespace

SumAndNorm add_layer_norm(const Tensor& left, const Tensor& right, const Shape& normalized_shape,
                          const Tensor& weight, const Tensor& bias, double eps) {
  const char* op = "add_layer_norm";
  detail::check_summands(op, left, right);
  const Cut cut{detail::trailing_rows(op, left, normalized_shape), normalized_shape};
  check_parameters(op, cut, left, weight, bias, eps);
  const bool needed = needs_gradient(left) || needs_gradient(right) || needs_gradient(weight) ||
                      needs_gradient(bias);
  Tensor sum = Tensor::empty(left.shape(), left.dtype());
  Tensor y = Tensor::empty(left.shape(), left.dtype());
  Tensor stats = empty_if(needed, {cut.rows.rows, 3}, left.dtype());
  dispatch_float(op, left.dtype(), [&]<FloatElement T>() {
    add_layer_norm_forward<T>(cut.rows, eps, elements<T>(left), elements<T>(right),
                              elements<T>(weight), elements<T>(bias), writable<T>(sum, op),
                              writable<T>(y, op), writable<T>(stats, op));
  });
  auto [s, n] = record(op, std::array{sum, y}, {left, right, weight, bias}, {sum, weight, stats},
                       [cut](BackwardCall& call) { add_backward(cut, call); });
  return {std::move(s), std::move(n)};
}

Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight,
                  const Tensor& bias, double eps) {
  const char* op = "layer_norm";
  detail::check_norm_input(op, x);
  return forward(op, {detail::trailing_rows(op, x, normalized_shape), normalized_shape}, x, weight,
                 bias, eps);
}

Tensor layer_norm_over_sample(const Tensor& x, const Tensor& weight, const Tensor& bias,
                              double eps) {
  const char* op = "layer_norm_over_sample";
  detail::check_norm_input(op, x);
  STEADY_CHECK(ShapeError, x.rank() >= 2, "{}: needs [N, ..., C]; got x {}", op, describe(x));
  const std::int64_t channels = x.dim(-1);
  const RowShape rows{.rows = x.dim(0), .width = x.shape().numel(1, x.rank()), .affine = channels};
  return forward(op, {rows, {channels}}, x, weight, bias, eps);
}

namespace {

const LayerNorm::Options& checked(const LayerNorm::Options& o) {
  detail::check_eps("LayerNorm", o.eps);
  const int axes = o.normalized_shape.rank();
  STEADY_CHECK(ShapeError,
               axes >= 1 && o.normalized_shape.numel() >= 1 && (!o.over_sample || axes == 1),
               "LayerNorm: normalized_shape needs one axis or more, exactly one with over_sample, "
               "and no extent below 1; got {}",
               to_string(o.normalized_shape));
  return o;
}

}  // namespace

LayerNorm::LayerNorm(const Options& options)
    : o(checked(options)),
      weight(add_parameter("weight", Tensor::ones(o.normalized_shape), Role::NormScale, o.affine)),
      bias(add_parameter("bias", Tensor::zeros(o.normalized_shape), Role::NormShift,
                         o.affine && o.bias)) {}

Tensor LayerNorm::forward(const Tensor& x) {
  if (!o.over_sample) return layer_norm(x, o.normalized_shape, weight, bias, o.eps);
  detail::check_features("LayerNorm", x, o.normalized_shape[0]);
  return layer_norm_over_sample(x, weight, bias, o.eps);
}

SumAndNorm LayerNorm::of_sum(const Tensor& x, const Tensor& added) {
  STEADY_CHECK(Error, !o.over_sample, "LayerNorm: adds only where rows are trailing axes");
  SumAndNorm result;
  (void)run(x, [&](const Tensor& left) {
    result = add_layer_norm(left, added, o.normalized_shape, weight, bias, o.eps);
    return result.norm;
  });
  return result;
}

void LayerNorm::measure(const Tensor& x, const MeasureSink& sink) const {
  const RowShape rows = o.over_sample
                            ? RowShape{.rows = x.dim(0), .width = x.shape().numel(1, x.rank())}
                            : detail::trailing_rows("LayerNorm", x, o.normalized_shape);
  Tensor normalized = Tensor::empty(x.shape(), x.dtype());
  Tensor stats = Tensor::empty({rows.rows, 3}, x.dtype());
  dispatch_float("LayerNorm", x.dtype(), [&]<FloatElement T>() {
    layer_norm_forward<T>(rows, o.eps, x.data<T>(), {}, {}, normalized.mutable_data<T>(),
                          stats.mutable_data<T>());
    detail::measure_range<T>(sink, "rstd", stats.data<T>(), 2, 3);
  });
  detail::measure_normalized(sink, normalized);
}

std::string LayerNorm::describe() const {
  return fmt::format("LayerNorm({}, eps={}{}{})", to_string(o.normalized_shape), o.eps,
                     o.over_sample ? ", over=sample" : "",
                     !o.affine ? ", affine=false"
                     : !o.bias ? ", bias=false"
                               : "");
}

namespace detail {

NormKind layer_kind() {
  return {
      "layer(eps=1e-5[0..], affine=true, bias=true, over=position|sample, "
      "simulate=none|bf16|fp16, accumulate=f32|same, cast=after|before)",
      [](const NormOptions& options, std::int64_t features) {
        return make_norm_in_precision<LayerNorm>(options,
                                                 {.normalized_shape = {features},
                                                  .eps = options.number("eps"),
                                                  .affine = options.flag("affine"),
                                                  .bias = options.flag("bias"),
                                                  .over_sample = options.text("over") == "sample"});
      }};
}

}  // namespace detail
}  // namespace steady
