#include <steadygrad/layers/norm/group_norm.hpp>

#include <array>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/norm/group_norm_kernel.hpp>
#include <steadygrad/layers/norm/norm_kinds.hpp>
#include <steadygrad/layers/norm/norm_measure.hpp>
#include <steadygrad/layers/norm/norm_op.hpp>

namespace steady {
namespace {

using detail::elements;
using detail::empty_if;
using detail::writable;

GroupShape cut_of(const char* op, const Tensor& x, std::int64_t groups) {
  detail::check_norm_input(op, x);
  STEADY_CHECK(ShapeError, x.rank() >= 2 && x.dim(-1) >= 1,
               "{}: needs [N, ..., C] of two axes or more, C >= 1; got x {}", op, describe(x));
  STEADY_CHECK(ShapeError, groups >= 1 && x.dim(-1) % groups == 0,
               "{}: {} groups do not divide the {} channels of x {}", op, groups, x.dim(-1),
               describe(x));
  return {.samples = x.dim(0),
          .positions = x.shape().numel(1, x.rank() - 1),
          .channels = x.dim(-1),
          .groups = groups};
}

Tensor workspace(const GroupShape& cut) {
  return Tensor::empty({group_norm_workspace(cut)}, Dtype::F64);
}

/// Gradients of (dy, x, weight) from those of (dx, dweight, dbias).
std::array<Tensor, 3> double_backward(const GroupShape& cut, const BackwardCall& call) {
  const char* op = "group_norm_double_backward";
  const Tensor &dy = call.saved(0), &x = call.saved(1), &weight = call.saved(2),
               &stats = call.saved(3);
  Tensor ddy = empty_if(call.needs(0), x.shape(), x.dtype());
  Tensor dx2 = empty_if(call.needs(1), x.shape(), x.dtype());
  Tensor dweight2 = empty_if(call.needs(2), {cut.channels}, x.dtype());
  Tensor scratch = workspace(cut);
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    group_norm_double_backward<T>(cut, elements<T>(x), elements<T>(dy), elements<T>(weight),
                                  elements<T>(stats), elements<T>(call.grad(0)),
                                  elements<T>(call.grad(1)), elements<T>(call.grad(2)),
                                  writable<T>(ddy, op), writable<T>(dx2, op),
                                  writable<T>(dweight2, op), writable<double>(scratch, op));
  });
  return record(op, std::array{ddy, dx2, dweight2},
                {dy, x, weight, call.grad(0), call.grad(1), call.grad(2)}, {}, NoBackward{});
}

/// Gradients of (x, weight, bias), those that are needed.
std::array<Tensor, 3> backward(const GroupShape& cut, const BackwardCall& call) {
  const char* op = "group_norm_backward";
  const Tensor &dy = call.grad(), &x = call.saved(0), &weight = call.saved(1),
               &stats = call.saved(2);
  Tensor dx = empty_if(call.needs(0), x.shape(), x.dtype());
  Tensor dweight = empty_if(call.needs(1), {cut.channels}, x.dtype());
  Tensor dbias = empty_if(call.needs(2), {cut.channels}, x.dtype());
  Tensor scratch = workspace(cut);
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    group_norm_backward<T>(cut, elements<T>(x), elements<T>(dy), elements<T>(weight),
                           elements<T>(stats), writable<T>(dx, op), writable<T>(dweight, op),
                           writable<T>(dbias, op), writable<double>(scratch, op));
  });
  return record(op, std::array{dx, dweight, dbias}, {dy, x, weight}, {dy, x, weight, stats},
                [cut](BackwardCall& second) {
                  auto [ddy, dx2, dweight2] = double_backward(cut, second);
                  second.give(0, std::move(ddy));
                  second.give(1, std::move(dx2));
                  second.give(2, std::move(dweight2));
                });
}

}  // namespace

namespace detail {

Tensor group_norm(const char* op, const Tensor& x, std::int64_t groups, const Tensor& weight,
                  const Tensor& bias, double eps, std::span<Moments> moments) {
  const GroupShape cut = cut_of(op, x, groups);
  check_norm_parameter(op, "weight", weight, {cut.channels}, x);
  check_norm_parameter(op, "bias", bias, {cut.channels}, x);
  check_eps(op, eps);
  STEADY_CHECK(ShapeError, cut.samples == 0 || cut.group_elements() != 1,
               "{}: a group of one value has no variance; got {} groups over x {}", op, groups,
               describe(x));
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  // Zero where there is nothing: the gradients of weight and bias are then 0, not 0 * NaN.
  Tensor stats = Tensor::zeros({cut.samples, cut.groups, 3}, x.dtype());
  if (cut.elements() > 0) {
    dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
      group_norm_forward<T>(cut, eps, elements<T>(x), elements<T>(weight), elements<T>(bias),
                            writable<T>(y, op), writable<T>(stats, op), moments);
    });
  }
  return record(op, std::move(y), {x, weight, bias}, {x, weight, stats}, [cut](BackwardCall& call) {
    auto [dx, dweight, dbias] = backward(cut, call);
    call.give(0, std::move(dx));
    call.give(1, std::move(dweight));
    call.give(2, std::move(dbias));
  });
}

void measure_groups(const Tensor& x, std::int64_t groups, double eps, const MeasureSink& sink) {
  const GroupShape cut = cut_of("measure", x, groups);
  if (cut.elements() == 0) return;
  Tensor normalized = Tensor::empty(x.shape(), x.dtype());
  Tensor stats = Tensor::empty({cut.samples, cut.groups, 3}, x.dtype());
  dispatch_float("measure", x.dtype(), [&]<FloatElement T>() {
    group_norm_forward<T>(cut, eps, x.data<T>(), {}, {}, normalized.mutable_data<T>(),
                          stats.mutable_data<T>());
    measure_range<T>(sink, "rstd", stats.data<T>(), 2, 3);
  });
  measure_normalized(sink, normalized);
}

}  // namespace detail

Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight, const Tensor& bias,
                  double eps) {
  return detail::group_norm("group_norm", x, groups, weight, bias, eps, {});
}

namespace {

const GroupNorm::Options& checked(const GroupNorm::Options& o) {
  STEADY_CHECK(Error, o.features >= 1, "GroupNorm: needs features >= 1; got {}", o.features);
  STEADY_CHECK(Error, o.groups >= 1 && o.features % o.groups == 0,
               "GroupNorm: {} groups do not divide {} features", o.groups, o.features);
  detail::check_eps("GroupNorm", o.eps);
  return o;
}

}  // namespace

GroupNorm::GroupNorm(const Options& options)
    : o(checked(options)),
      weight(add_parameter("weight", Tensor::ones({o.features}), Role::NormScale, o.affine)),
      bias(add_parameter("bias", Tensor::zeros({o.features}), Role::NormShift,
                         o.affine && o.bias)) {}

Tensor GroupNorm::forward(const Tensor& x) {
  detail::check_features("GroupNorm", x, o.features);
  return group_norm(x, o.groups, weight, bias, o.eps);
}

void GroupNorm::measure(const Tensor& x, const MeasureSink& sink) const {
  detail::measure_groups(x, o.groups, o.eps, sink);
}

std::string GroupNorm::describe() const {
  return fmt::format("GroupNorm({}, groups={}, eps={}{})", o.features, o.groups, o.eps,
                     !o.affine ? ", affine=false"
                     : !o.bias ? ", bias=false"
                               : "");
}

namespace detail {

NormKind group_kind() {
  return {
      "group(groups=32[1..], eps=1e-5[0..], affine=true, bias=true)",
      [](const NormOptions& options, std::int64_t features) {
        return std::make_unique<GroupNorm>(GroupNorm::Options{.features = features,
                                                              .groups = options.integer("groups"),
                                                              .eps = options.number("eps"),
                                                              .affine = options.flag("affine"),
                                                              .bias = options.flag("bias")});
      }};
}

}  // namespace detail
}  // namespace steady
