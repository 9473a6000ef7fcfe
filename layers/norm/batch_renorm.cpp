#include <steadygrad/layers/norm/batch_renorm.hpp>

#include <algorithm>
#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/state_update.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/layers/norm/norm_kinds.hpp>
#include <steadygrad/layers/norm/norm_measure.hpp>
#include <steadygrad/layers/norm/norm_op.hpp>
#include <steadygrad/layers/norm/running_update.hpp>

// With xhat = (x - mean) / s the equation is xhat * (weight * r) + (weight * d + bias): batch_norm
// with another weight and bias, of which r and d are constants. So
//   dx = weight * r / s * P(u),  dweight = r * sum u * xhat + d * sum u,  dbias = sum u
// follow from batch_norm's derivatives and the product rule, in both orders.

namespace steady {
namespace {

void check_limits(const char* op, const RenormLimits& limits) {
  STEADY_CHECK(Error, std::isfinite(limits.rmax) && limits.rmax >= 1,
               "{}: rmax must be finite and >= 1; got {}", op, limits.rmax);
  STEADY_CHECK(Error, std::isfinite(limits.dmax) && limits.dmax >= 0,
               "{}: dmax must be finite and >= 0; got {}", op, limits.dmax);
}

/// clip, and a NaN stays one.
double clip(double v, double low, double high) { return v < low ? low : v > high ? high : v; }

template <FloatElement T>
void corrections(BatchRenormResult& result, const Tensor& running_mean, const Tensor& running_var,
                 const RenormLimits& limits, double eps) {
  const std::span<T> r = result.r.mutable_data<T>(), d = result.d.mutable_data<T>();
  for (std::size_t c = 0; c < result.moments.size(); ++c) {
    const Moments& batch = result.moments[c];
    if (batch.n == 0) continue;
    const double deviation = std::sqrt(static_cast<double>(running_var.data<T>()[c]) + eps);
    const double gap = batch.mean - static_cast<double>(running_mean.data<T>()[c]);
    const double ratio = std::sqrt(batch.variance() + eps) / deviation;
    r[c] = static_cast<T>(clip(ratio, 1 / limits.rmax, limits.rmax));
    d[c] = static_cast<T>(clip(gap / deviation, -limits.dmax, limits.dmax));
  }
}

std::vector<Moments> moments_of(const Tensor& x) {
  const ColumnShape columns{.rows = x.shape().numel(0, x.rank() - 1), .channels = x.dim(-1)};
  std::vector<Moments> moments(static_cast<std::size_t>(columns.channels));
  Tensor workspace = Tensor::empty({column_workspace(columns)}, Dtype::F64);
  dispatch_float("batch_renorm", x.dtype(), [&]<FloatElement T>() {
    column_moments<T>(columns, x.data<T>(), moments, workspace.mutable_data<double>());
  });
  return moments;
}

}  // namespace

BatchRenormResult batch_renorm(const Tensor& x, const Tensor& running_mean,
                               const Tensor& running_var, const RenormLimits& limits,
                               const Tensor& weight, const Tensor& bias, double eps) {
  const char* op = "batch_renorm";
  detail::check_norm_input(op, x);
  STEADY_CHECK(ShapeError, x.rank() >= 2 && x.dim(-1) >= 1,
               "{}: needs [..., C] of two axes or more, C >= 1; got x {}", op, describe(x));
  const Shape channels{x.dim(-1)};
  check_defined(op, "running_mean", running_mean);
  check_defined(op, "running_var", running_var);
  detail::check_norm_parameter(op, "running_mean", running_mean, channels, x);
  detail::check_norm_parameter(op, "running_var", running_var, channels, x);
  detail::check_norm_parameter(op, "weight", weight, channels, x);
  detail::check_norm_parameter(op, "bias", bias, channels, x);
  detail::check_eps(op, eps);
  check_limits(op, limits);
  BatchRenormResult result{.y = {},
                           .moments = moments_of(x),
                           .r = Tensor::ones(channels, x.dtype()),
                           .d = Tensor::zeros(channels, x.dtype())};
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    corrections<T>(result, running_mean, running_var, limits, eps);
  });
  const Tensor scale = weight.defined() ? mul(weight, result.r) : result.r;
  const Tensor offset = weight.defined() ? mul(weight, result.d) : result.d;
  result.y = batch_norm(x, scale, bias.defined() ? add(offset, bias) : offset, eps).y;
  return result;
}

namespace {

const BatchRenorm::Options& checked(const BatchRenorm::Options& o) {
  STEADY_CHECK(Error, o.features >= 1, "BatchRenorm: needs features >= 1; got {}", o.features);
  detail::check_eps("BatchRenorm", o.eps);
  detail::check_momentum("BatchRenorm", o.momentum);
  check_limits("BatchRenorm", {o.rmax, o.dmax});
  return o;
}

}  // namespace

BatchRenorm::BatchRenorm(const Options& options)
    : o(checked(options)),
      limits{o.rmax, o.dmax},
      weight(add_parameter("weight", Tensor::ones({o.features}), Role::NormScale, o.affine)),
      bias(add_parameter("bias", Tensor::zeros({o.features}), Role::NormShift, o.affine && o.bias)),
      running_mean(add_buffer("running_mean", Tensor::zeros({o.features}))),
      running_var(add_buffer("running_var", Tensor::ones({o.features}))),
      num_batches_tracked(add_buffer("num_batches_tracked", Tensor::scalar(0, Dtype::I64))) {}

Tensor BatchRenorm::forward(const Tensor& x) {
  detail::check_features("BatchRenorm", x, o.features);
  if (mode() != Mode::Train) {
    return batch_norm_eval(x, running_mean, running_var, weight, bias, o.eps);
  }
  BatchRenormResult result =
      batch_renorm(x, running_mean, running_var, limits, weight, bias, o.eps);
  if (state_updates() && x.numel() > 0) {
    detail::RunningUpdate update(
        {.mean = running_mean, .var = running_var, .count = num_batches_tracked},
        {.layer = "BatchRenorm", .momentum = o.momentum, .check_finite = o.check_finite});
    update.add(result.moments);
    update.commit();
  }
  return result.y;
}

void BatchRenorm::measure(const Tensor& x, const MeasureSink& sink) const {
  if (x.numel() == 0) return;
  if (mode() != Mode::Train) {
    detail::measure_rstd(sink, running_var, o.eps);
    detail::measure_normalized(
        sink, batch_norm_eval(x.detach(), running_mean, running_var, {}, {}, o.eps));
    return;
  }
  const BatchRenormResult result =
      batch_renorm(x.detach(), running_mean, running_var, limits, {}, {}, o.eps);
  detail::measure_rstd(sink, result.moments, o.eps);
  detail::measure_normalized(sink, result.y);
  dispatch_float("BatchRenorm", x.dtype(), [&]<FloatElement T>() {
    detail::measure_range<T>(sink, "r", result.r.data<T>(), 0, 1);
    detail::measure_range<T>(sink, "d", result.d.data<T>(), 0, 1);
  });
}

void BatchRenorm::on_clone(const Module& original) {
  limits = dynamic_cast<const BatchRenorm&>(original).limits;
}

std::string BatchRenorm::describe() const {
  return fmt::format("BatchRenorm({}, eps={}, {}, rmax={}, dmax={}{})", o.features, o.eps,
                     detail::describe_running(true, o.momentum), limits.rmax, limits.dmax,
                     !o.affine ? ", affine=false"
                     : !o.bias ? ", bias=false"
                               : "");
}

std::string BatchRenorm::statistics() const {
  return mode() == Mode::Train ? "updating" : "frozen";
}

namespace detail {

NormKind renorm_kind() {
  return {
      "renorm(eps=1e-5[0..], momentum=0.1[0..1]|cumulative, affine=true, bias=true, "
      "rmax=3[1..], dmax=5[0..])",
      [](const NormOptions& options, std::int64_t features) {
        return std::make_unique<BatchRenorm>(BatchRenorm::Options{.features = features,
                                                                  .eps = options.number("eps"),
                                                                  .momentum = momentum_of(options),
                                                                  .affine = options.flag("affine"),
                                                                  .bias = options.flag("bias"),
                                                                  .rmax = options.number("rmax"),
                                                                  .dmax = options.number("dmax")});
      }};
}

}  // namespace detail
}  // namespace steady
