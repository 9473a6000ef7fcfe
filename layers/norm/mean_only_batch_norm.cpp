#include <steadygrad/layers/norm/mean_only_batch_norm.hpp>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/state_update.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/norm/column_apply_kernel.hpp>
#include <steadygrad/layers/norm/norm_kinds.hpp>
#include <steadygrad/layers/norm/norm_op.hpp>
#include <steadygrad/layers/norm/running_update.hpp>

// Centring takes the mean of each column away: the projection C = I - 1 1^T / M, symmetric, so
//   y = C x,   dx = C dy,   and the derivative of that by dy is C again.

namespace steady {
namespace {

ColumnShape columns_of(const char* op, const Tensor& x) {
  detail::check_norm_input(op, x);
  STEADY_CHECK(ShapeError, x.rank() >= 2 && x.dim(-1) >= 1,
               "{}: needs [..., C] of two axes or more, C >= 1; got x {}", op, describe(x));
  return {.rows = x.shape().numel(0, x.rank() - 1), .channels = x.dim(-1)};
}

/// mean + low is the mean of a channel: y = (x - mean) - low.
template <FloatElement T>
void subtract_mean(const ColumnShape& columns, std::span<const Moments> moments,
                   std::span<const T> x, std::span<T> y) {
  const std::size_t channels = moments.size();
  std::vector<T> mean(channels), one(channels, T(1)), shift(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    mean[c] = static_cast<T>(moments[c].mean);
    shift[c] = static_cast<T>(static_cast<double>(mean[c]) - moments[c].mean);
  }
  column_affine<T>(columns, {mean, one, shift}, x, y);
}

}  // namespace

CenterBatchResult center_batch(const Tensor& x) {
  const char* op = "center_batch";
  const ColumnShape columns = columns_of(op, x);
  CenterBatchResult result{Tensor::empty(x.shape(), x.dtype()), {}};
  result.moments.resize(static_cast<std::size_t>(columns.channels));
  if (columns.rows > 0) {
    Tensor workspace = Tensor::empty({column_workspace(columns)}, Dtype::F64);
    dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
      column_moments<T>(columns, x.data<T>(), result.moments, workspace.mutable_data<double>(op));
      subtract_mean<T>(columns, result.moments, x.data<T>(), result.y.mutable_data<T>(op));
    });
  }
  result.y = record(op, std::move(result.y), {x}, {},
                    [](BackwardCall& call) { call.give(0, center_batch(call.grad()).y); });
  return result;
}

namespace {

const MeanOnlyBatchNorm::Options& checked(const MeanOnlyBatchNorm::Options& o) {
  STEADY_CHECK(Error, o.features >= 1, "MeanOnlyBatchNorm: needs features >= 1; got {}",
               o.features);
  detail::check_momentum("MeanOnlyBatchNorm", o.momentum);
  return o;
}

}  // namespace

MeanOnlyBatchNorm::MeanOnlyBatchNorm(const Options& options)
    : o(checked(options)),
      bias(add_parameter("bias", Tensor::zeros({o.features}), Role::NormShift, o.bias)),
      running_mean(add_buffer("running_mean", Tensor::zeros({o.features}), o.track_running_stats)),
      num_batches_tracked(add_buffer("num_batches_tracked", Tensor::scalar(0, Dtype::I64),
                                     o.track_running_stats)) {}

Tensor MeanOnlyBatchNorm::forward(const Tensor& x) {
  detail::check_features("MeanOnlyBatchNorm", x, o.features);
  Tensor centred;
  if (o.track_running_stats && mode() != Mode::Train) {
    centred = steady::sub(x, running_mean.detach());
  } else {
    const std::int64_t rows = x.shape().numel(0, x.rank() - 1);
    STEADY_CHECK(ShapeError, rows != 1,
                 "MeanOnlyBatchNorm: the batch's mean needs more than one value per channel; got x "
                 "{}; use larger batches, drop or merge the short last one, or evaluate in eval "
                 "mode",
                 steady::describe(x));
    CenterBatchResult result = center_batch(x);
    if (o.track_running_stats && mode() == Mode::Train && state_updates() && rows > 0) {
      detail::RunningUpdate update(
          {.mean = running_mean, .var = no_variance_, .count = num_batches_tracked},
          {.layer = "MeanOnlyBatchNorm", .momentum = o.momentum, .check_finite = o.check_finite});
      update.add(result.moments);
      update.commit();
    }
    centred = std::move(result.y);
  }
  return bias.defined() ? steady::add(centred, bias) : centred;
}

std::string MeanOnlyBatchNorm::describe() const {
  return fmt::format("MeanOnlyBatchNorm({}, {}{})", o.features,
                     detail::describe_running(o.track_running_stats, o.momentum),
                     o.bias ? "" : ", bias=false");
}

std::string MeanOnlyBatchNorm::statistics() const {
  if (!o.track_running_stats) return "";
  return mode() == Mode::Train ? "updating" : "frozen";
}

namespace detail {

NormKind mean_only_kind() {
  return {"mean_only(momentum=0.1[0..1]|cumulative, bias=true, track=true)",
          [](const NormOptions& options, std::int64_t features) {
            return std::make_unique<MeanOnlyBatchNorm>(
                MeanOnlyBatchNorm::Options{.features = features,
                                           .momentum = momentum_of(options),
                                           .bias = options.flag("bias"),
                                           .track_running_stats = options.flag("track")});
          }};
}

}  // namespace detail
}  // namespace steady
