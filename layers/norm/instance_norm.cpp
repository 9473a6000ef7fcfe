#include <steadygrad/layers/norm/instance_norm.hpp>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/state_update.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/layers/norm/group_norm.hpp>
#include <steadygrad/layers/norm/norm_kinds.hpp>
#include <steadygrad/layers/norm/norm_measure.hpp>
#include <steadygrad/layers/norm/norm_op.hpp>
#include <steadygrad/layers/norm/running_update.hpp>

namespace steady {

InstanceNormResult instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                 double eps) {
  const char* op = "instance_norm";
  detail::check_norm_input(op, x);
  STEADY_CHECK(ShapeError, x.rank() >= 3 && x.dim(-1) >= 1,
               "{}: needs [N, ..., C] of three axes or more, C >= 1; got x {}", op, describe(x));
  const std::int64_t positions = x.shape().numel(1, x.rank() - 1);
  STEADY_CHECK(ShapeError, positions != 1 || x.dim(0) == 0,
               "{}: needs more than one position per sample; got x {}", op, describe(x));
  InstanceNormResult result;
  result.moments.resize(static_cast<std::size_t>(x.dim(0) * x.dim(-1)));
  result.y = detail::group_norm(op, x, x.dim(-1), weight, bias, eps, result.moments);
  return result;
}

namespace {

const InstanceNorm::Options& checked(const InstanceNorm::Options& o) {
  STEADY_CHECK(Error, o.features >= 1, "InstanceNorm: needs features >= 1; got {}", o.features);
  detail::check_eps("InstanceNorm", o.eps);
  STEADY_CHECK(Error, o.momentum >= 0 && o.momentum <= 1,
               "InstanceNorm: momentum is the weight of the new batch, in [0, 1]; got {}",
               o.momentum);
  return o;
}

/// Per channel the average of the samples' moments, which all have the same count: its unbiased
/// variance is the average of theirs.
std::vector<Moments> average(std::span<const Moments> moments, std::size_t channels) {
  std::vector<Moments> result(channels);
  const std::size_t count = moments.size() / channels;
  const auto samples = static_cast<double>(count);
  for (std::size_t i = 0; i < moments.size(); ++i) {
    Moments& total = result[i % channels];
    total.n = moments[i].n;
    total.mean += moments[i].mean / samples;
    total.m2 += moments[i].m2 / samples;
  }
  return result;
}

}  // namespace

InstanceNorm::InstanceNorm(const Options& options)
    : o(checked(options)),
      weight(add_parameter("weight", Tensor::ones({o.features}), Role::NormScale, o.affine)),
      bias(add_parameter("bias", Tensor::zeros({o.features}), Role::NormShift, o.affine && o.bias)),
      running_mean(add_buffer("running_mean", Tensor::zeros({o.features}), o.track_running_stats)),
      running_var(add_buffer("running_var", Tensor::ones({o.features}), o.track_running_stats)),
      num_batches_tracked(add_buffer("num_batches_tracked", Tensor::scalar(0, Dtype::I64),
                                     o.track_running_stats)) {}

Tensor InstanceNorm::forward(const Tensor& x) {
  detail::check_features("InstanceNorm", x, o.features);
  if (o.track_running_stats && mode() != Mode::Train) {
    return batch_norm_eval(x, running_mean, running_var, weight, bias, o.eps);
  }
  InstanceNormResult result = instance_norm(x, weight, bias, o.eps);
  if (o.track_running_stats && mode() == Mode::Train && state_updates() && x.numel() > 0) {
    Tensor uncounted = num_batches_tracked.detached_copy();
    detail::RunningUpdate update(
        {.mean = running_mean, .var = running_var, .count = uncounted},
        {.layer = "InstanceNorm", .momentum = o.momentum, .check_finite = o.check_finite});
    update.add(average(result.moments, static_cast<std::size_t>(o.features)));
    update.commit();
  }
  return result.y;
}

void InstanceNorm::measure(const Tensor& x, const MeasureSink& sink) const {
  if (!o.track_running_stats || mode() == Mode::Train) {
    detail::measure_groups(x, o.features, o.eps, sink);
    return;
  }
  detail::measure_rstd(sink, running_var, o.eps);
  detail::measure_normalized(sink,
                             batch_norm_eval(x.detach(), running_mean, running_var, {}, {}, o.eps));
}

std::string InstanceNorm::describe() const {
  return fmt::format("InstanceNorm({}, eps={}, {}{})", o.features, o.eps,
                     o.track_running_stats ? fmt::format("new batch weighs momentum={}", o.momentum)
                                           : std::string("no running statistics"),
                     !o.affine ? ", affine=false"
                     : !o.bias ? ", bias=false"
                               : "");
}

std::string InstanceNorm::statistics() const {
  if (!o.track_running_stats) return "";
  return mode() == Mode::Train ? "updating" : "frozen";
}

namespace detail {

NormKind instance_kind() {
  return {"instance(eps=1e-5[0..], affine=false, bias=true, track=false, momentum=0.1[0..1])",
          [](const NormOptions& options, std::int64_t features) {
            return std::make_unique<InstanceNorm>(
                InstanceNorm::Options{.features = features,
                                      .eps = options.number("eps"),
                                      .affine = options.flag("affine"),
                                      .bias = options.flag("bias"),
                                      .track_running_stats = options.flag("track"),
                                      .momentum = options.number("momentum")});
          }};
}

}  // namespace detail
}  // namespace steady
