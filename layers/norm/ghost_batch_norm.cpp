#include <steadygrad/layers/norm/ghost_batch_norm.hpp>

#include <algorithm>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/state_update.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/layers/norm/norm_kinds.hpp>
#include <steadygrad/layers/norm/norm_measure.hpp>
#include <steadygrad/layers/norm/norm_op.hpp>
#include <steadygrad/layers/norm/running_update.hpp>

// The virtual batches are slices along the first axis, and so is the gradient: there is nothing to
// derive beyond batch_norm.

namespace steady {

GhostBatchNormResult ghost_batch_norm(const Tensor& x, std::int64_t size, const Tensor& weight,
                                      const Tensor& bias, double eps) {
  STEADY_CHECK(Error, size >= 1, "ghost_batch_norm: needs size >= 1; got {}", size);
  detail::check_norm_input("ghost_batch_norm", x);
  GhostBatchNormResult result;
  if (x.rank() == 0 || x.dim(0) <= size) {
    BatchNormResult whole = batch_norm(x, weight, bias, eps);
    result.y = std::move(whole.y);
    result.moments.push_back(std::move(whole.moments));
    return result;
  }
  std::vector<Tensor> parts;
  for (std::int64_t start = 0; start < x.dim(0); start += size) {
    const Tensor part = slice(x, 0, start, std::min(start + size, x.dim(0)));
    BatchNormResult normalized = batch_norm(part, weight, bias, eps);
    parts.push_back(std::move(normalized.y));
    result.moments.push_back(std::move(normalized.moments));
  }
  result.y = concat(parts, 0);
  return result;
}

namespace {

const GhostBatchNorm::Options& checked(const GhostBatchNorm::Options& o) {
  STEADY_CHECK(Error, o.features >= 1, "GhostBatchNorm: needs features >= 1; got {}", o.features);
  STEADY_CHECK(Error, o.size >= 1, "GhostBatchNorm: needs size >= 1; got {}", o.size);
  detail::check_eps("GhostBatchNorm", o.eps);
  detail::check_momentum("GhostBatchNorm", o.momentum);
  return o;
}

}  // namespace

GhostBatchNorm::GhostBatchNorm(const Options& options)
    : o(checked(options)),
      weight(add_parameter("weight", Tensor::ones({o.features}), Role::NormScale, o.affine)),
      bias(add_parameter("bias", Tensor::zeros({o.features}), Role::NormShift, o.affine && o.bias)),
      running_mean(add_buffer("running_mean", Tensor::zeros({o.features}), o.track_running_stats)),
      running_var(add_buffer("running_var", Tensor::ones({o.features}), o.track_running_stats)),
      num_batches_tracked(add_buffer("num_batches_tracked", Tensor::scalar(0, Dtype::I64),
                                     o.track_running_stats)) {}

Tensor GhostBatchNorm::forward(const Tensor& x) {
  detail::check_features("GhostBatchNorm", x, o.features);
  if (o.track_running_stats && mode() != Mode::Train) {
    return batch_norm_eval(x, running_mean, running_var, weight, bias, o.eps);
  }
  GhostBatchNormResult result = ghost_batch_norm(x, o.size, weight, bias, o.eps);
  if (o.track_running_stats && mode() == Mode::Train && state_updates() && x.numel() > 0) {
    detail::RunningUpdate update(
        {.mean = running_mean, .var = running_var, .count = num_batches_tracked},
        {.layer = "GhostBatchNorm", .momentum = o.momentum, .check_finite = o.check_finite});
    for (const std::vector<Moments>& moments : result.moments) update.add(moments);
    update.commit();
  }
  return result.y;
}

void GhostBatchNorm::measure(const Tensor& x, const MeasureSink& sink) const {
  if (x.numel() == 0) return;
  if (o.track_running_stats && mode() != Mode::Train) {
    detail::measure_rstd(sink, running_var, o.eps);
    detail::measure_normalized(
        sink, batch_norm_eval(x.detach(), running_mean, running_var, {}, {}, o.eps));
    return;
  }
  const GhostBatchNormResult result = ghost_batch_norm(x.detach(), o.size, {}, {}, o.eps);
  std::vector<Moments> all;
  for (const std::vector<Moments>& m : result.moments) all.insert(all.end(), m.begin(), m.end());
  detail::measure_rstd(sink, all, o.eps);
  detail::measure_normalized(sink, result.y);
}

std::string GhostBatchNorm::describe() const {
  return fmt::format("GhostBatchNorm({}, size={}, eps={}, {}{})", o.features, o.size, o.eps,
                     detail::describe_running(o.track_running_stats, o.momentum),
                     !o.affine ? ", affine=false"
                     : !o.bias ? ", bias=false"
                               : "");
}

std::string GhostBatchNorm::statistics() const {
  if (!o.track_running_stats) return "";
  return mode() == Mode::Train ? "updating" : "frozen";
}

namespace detail {

NormKind ghost_kind() {
  return {
      "ghost(size=32[1..], eps=1e-5[0..], momentum=0.1[0..1]|cumulative, affine=true, "
      "bias=true, track=true)",
      [](const NormOptions& options, std::int64_t features) {
        return std::make_unique<GhostBatchNorm>(
            GhostBatchNorm::Options{.features = features,
                                    .size = options.integer("size"),
                                    .eps = options.number("eps"),
                                    .momentum = momentum_of(options),
                                    .affine = options.flag("affine"),
                                    .bias = options.flag("bias"),
                                    .track_running_stats = options.flag("track")});
      }};
}

}  // namespace detail
}  // namespace steady
