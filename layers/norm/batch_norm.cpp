#include <steadygrad/layers/norm/batch_norm.hpp>

#include <array>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/elementwise.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/pool.hpp>
#include <steadygrad/core/state_update.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/norm/batch_norm_kernel.hpp>
#include <steadygrad/layers/norm/norm_kinds.hpp>
#include <steadygrad/layers/norm/norm_measure.hpp>
#include <steadygrad/layers/norm/norm_op.hpp>
#include <steadygrad/layers/norm/running_update.hpp>
#include <steadygrad/layers/norm/simulated_norm.hpp>
#include <steadygrad/layers/norm/sync_batch_norm.hpp>

namespace steady {
namespace {

using detail::elements;
using detail::empty_if;
using detail::writable;
using kernels::Pool2dGeometry;

/// `constant`: the statistics did not come from x; `relu`: y went through a ReLU; `windows`: and
/// was pooled. Fixed at the forward, whatever mode is set later.
struct Cut {
  ColumnShape columns;
  bool constant;
  bool relu = false;
  std::optional<Pool2dGeometry> windows = std::nullopt;
};

Cut cut_of(const char* op, const Tensor& x, bool constant, bool relu = false) {
  detail::check_norm_input(op, x);
  STEADY_CHECK(ShapeError, x.rank() >= 2 && x.dim(-1) >= 1,
               "{}: needs [..., C] of two axes or more, C >= 1; got x {}", op, describe(x));
  return {{.rows = x.shape().numel(0, x.rank() - 1), .channels = x.dim(-1)}, constant, relu};
}

Pool2dGeometry side_by_side(const Tensor& x, std::int64_t kernel) {
  return {.batch = x.dim(0),
          .height = x.dim(1),
          .width = x.dim(2),
          .channels = x.dim(3),
          .kernel = {kernel, kernel},
          .stride = {kernel, kernel}};
}

/// Whether windows tile the images, and a cache holds a few bands of them.
bool pools_in_bands(const Tensor& x, std::int64_t kernel) {
  constexpr std::int64_t BandElements = 32768;
  return x.defined() && x.rank() == 4 && x.numel() > 0 && kernel >= 1 && kernel <= BandElements &&
         kernel * x.dim(2) * x.dim(3) <= BandElements &&
         kernels::windows_tile(side_by_side(x, kernel));
}

Tensor workspace(const Cut& cut) {
  return Tensor::empty({column_workspace(cut.columns)}, Dtype::F64);
}

/// Gradients of (dy, x, weight) from those of (dx, dweight, dbias).
std::array<Tensor, 3> double_backward(const Cut& cut, const BackwardCall& call) {
  const char* op = "batch_norm_double_backward";
  const Tensor &dy = call.saved(0), &x = call.saved(1), &weight = call.saved(2),
               &stats = call.saved(3);
  Tensor ddy = empty_if(call.needs(0), x.shape(), x.dtype());
  Tensor dx2 = empty_if(call.needs(1), x.shape(), x.dtype());
  Tensor dweight2 = empty_if(call.needs(2), {cut.columns.channels}, x.dtype());
  Tensor scratch = workspace(cut);
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    const auto run =
        cut.constant ? &batch_norm_double_backward_frozen<T> : &batch_norm_double_backward<T>;
    run(cut.columns, elements<T>(x), elements<T>(dy), elements<T>(weight), elements<T>(stats),
        elements<T>(call.grad(0)), elements<T>(call.grad(1)), elements<T>(call.grad(2)),
        writable<T>(ddy, op), writable<T>(dx2, op), writable<T>(dweight2, op),
        writable<double>(scratch, op));
  });
  return record(op, std::array{ddy, dx2, dweight2},
                {dy, x, weight, call.grad(0), call.grad(1), call.grad(2)}, {}, NoBackward{});
}

/// 1 where the ReLU behind the norm passes a gradient, else 0.
Tensor gate(const Cut& cut, const BackwardCall& call) {
  const char* op = "batch_norm_backward";
  const Tensor &x = call.saved(0), &weight = call.saved(1), &stats = call.saved(2),
               &bias = call.saved(3);
  Tensor open = Tensor::ones(x.shape(), x.dtype());
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    batch_norm_apply<T>(cut.columns, elements<T>(x), elements<T>(weight), elements<T>(bias),
                        elements<T>(stats), writable<T>(y, op));
    const std::span<T> passes = writable<T>(open, op);
    kernels::unary_backward<T>(kernels::Unary::Relu, passes, y.data<T>(), passes);
  });
  return open;
}

/// Gradients of (x, weight, bias), those that are needed. Where they will be differentiated
/// themselves, the ReLU's part is an operation of its own.
std::array<Tensor, 3> backward(Cut cut, const BackwardCall& call) {
  const char* op = "batch_norm_backward";
  const bool apart = cut.relu && recording();
  Tensor dy = call.grad();
  if (apart) {
    if (cut.windows) dy = detail::max_pool2d_gradient(*cut.windows, dy, call.saved(4));
    dy = dy * gate(cut, call);
    cut.relu = false;
    cut.windows = std::nullopt;
  }
  const Tensor &x = call.saved(0), &weight = call.saved(1), &stats = call.saved(2),
               &bias = call.saved(3);
  Tensor dx = empty_if(call.needs(0), x.shape(), x.dtype());
  Tensor dweight = empty_if(call.needs(1), {cut.columns.channels}, x.dtype());
  Tensor dbias = empty_if(call.needs(2), {cut.columns.channels}, x.dtype());
  Tensor scratch = workspace(cut);
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    const auto run = cut.constant ? &batch_norm_backward_frozen<T> : &batch_norm_backward<T>;
    const auto from = [&](const ColumnRows<T>& rows) {
      run(cut.columns, elements<T>(x), rows, elements<T>(weight), elements<T>(stats),
          writable<T>(dx, op), writable<T>(dweight, op), writable<T>(dbias, op),
          writable<double>(scratch, op),
          {cut.relu, cut.relu ? elements<T>(bias) : std::span<const T>()});
    };
    if (!cut.windows) return from(elements<T>(dy));
    from(PooledGradient<T>(*cut.windows, elements<T>(dy), call.saved(4).data<std::int32_t>()));
  });
  return record(op, std::array{dx, dweight, dbias}, {dy, x, weight}, {dy, x, weight, stats},
                [cut](BackwardCall& second) {
                  auto [ddy, dx2, dweight2] = double_backward(cut, second);
                  second.give(0, std::move(ddy));
                  second.give(1, std::move(dx2));
                  second.give(2, std::move(dweight2));
                });
}

/// Notes y; the statistics that it was made with stay with the tape's entry.
Tensor record_forward(const char* op, const Cut& cut, Tensor y, const Tensor& x,
                      const Tensor& weight, const Tensor& bias, const Tensor& stats,
                      const Tensor& index = {}) {
  return record(op, std::move(y), {x, weight, bias},
                {x, weight, stats, cut.relu ? bias : Tensor{}, index}, [cut](BackwardCall& call) {
                  auto [dx, dweight, dbias] = backward(cut, call);
                  call.give(0, std::move(dx));
                  call.give(1, std::move(dweight));
                  call.give(2, std::move(dbias));
                });
}

void check_parameters(const char* op, const Cut& cut, const Tensor& x, const Tensor& weight,
                      const Tensor& bias, double eps) {
  detail::check_norm_parameter(op, "weight", weight, {cut.columns.channels}, x);
  detail::check_norm_parameter(op, "bias", bias, {cut.columns.channels}, x);
  detail::check_eps(op, eps);
}

BatchNormResult with_batch_statistics(const char* op, const Cut& cut, const Tensor& x,
                                      const Tensor& weight, const Tensor& bias, double eps) {
  check_parameters(op, cut, x, weight, bias, eps);
  STEADY_CHECK(ShapeError, cut.columns.rows != 1,
               "{}: batch statistics need more than one value per channel; got x {}; use larger "
               "batches, drop or merge the short last one, or evaluate in eval mode",
               op, describe(x));
  const auto& windows = cut.windows;
  const Shape y_shape = windows ? Shape{windows->batch, windows->out_height(), windows->out_width(),
                                        windows->channels}
                                : x.shape();
  Tensor index = windows ? Tensor::empty(y_shape, Dtype::I32) : Tensor{};
  BatchNormResult result{Tensor::empty(y_shape, x.dtype()), {}};
  result.moments.resize(static_cast<std::size_t>(cut.columns.channels));
  // Zero where there are no rows: the gradients of weight and bias are then 0, not 0 * NaN.
  Tensor stats = Tensor::zeros({3, cut.columns.channels}, x.dtype());
  if (cut.columns.rows > 0) {
    Tensor scratch = workspace(cut);
    dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
      const std::span<T> y = writable<T>(result.y, op), stats_of = writable<T>(stats, op);
      const std::span<double> room = writable<double>(scratch, op);
      if (!windows) {
        return batch_norm_forward<T>(cut.columns, eps, elements<T>(x), elements<T>(weight),
                                     elements<T>(bias), y, result.moments, stats_of, room,
                                     cut.relu);
      }
      column_moments<T>(cut.columns, elements<T>(x), result.moments, room);
      batch_norm_stats<T>(result.moments, eps, stats_of);
      batch_norm_apply_pooled<T>(*windows, elements<T>(x), elements<T>(weight), elements<T>(bias),
                                 stats_of, y, index.mutable_data<std::int32_t>(op));
    });
  }
  result.y = record_forward(op, cut, std::move(result.y), x, weight, bias, stats, index);
  return result;
}

}  // namespace

BatchNormResult batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                           bool relu) {
  return with_batch_statistics("batch_norm", cut_of("batch_norm", x, false, relu), x, weight, bias,
                               eps);
}

BatchNormResult batch_norm_relu_pool(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                     double eps, std::int64_t kernel) {
  const char* op = "batch_norm_relu_pool";
  Cut cut = cut_of(op, x, false, true);
  STEADY_CHECK(ShapeError,
               x.rank() == 4 && kernel >= 1 && x.dim(1) >= 1 && x.dim(2) >= 1 &&
                   kernels::windows_tile(side_by_side(x, kernel)),
               "{}: needs [N, H, W, C] with H and W multiples of the kernel; got x {}, kernel {}",
               op, describe(x), kernel);
  cut.windows = side_by_side(x, kernel);
  cut.windows->check(op);
  return with_batch_statistics(op, cut, x, weight, bias, eps);
}

Tensor batch_norm_eval(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                       const Tensor& weight, const Tensor& bias, double eps, bool relu) {
  const char* op = "batch_norm_eval";
  const Cut cut = cut_of(op, x, true, relu);
  check_parameters(op, cut, x, weight, bias, eps);
  check_defined(op, "running_mean", running_mean);
  check_defined(op, "running_var", running_var);
  detail::check_norm_parameter(op, "running_mean", running_mean, {cut.columns.channels}, x);
  detail::check_norm_parameter(op, "running_var", running_var, {cut.columns.channels}, x);
  STEADY_CHECK(Error, !needs_gradient(running_mean) && !needs_gradient(running_var),
               "{}: the statistics are constants; detach() those that require a gradient", op);
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  Tensor stats = Tensor::empty({3, cut.columns.channels}, x.dtype());
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    batch_norm_running_stats<T>(elements<T>(running_mean), elements<T>(running_var), eps,
                                writable<T>(stats, op));
    batch_norm_apply<T>(cut.columns, elements<T>(x), elements<T>(weight), elements<T>(bias),
                        elements<T>(stats), writable<T>(y, op), relu);
  });
  return record_forward(op, cut, std::move(y), x, weight, bias, stats);
}

namespace {

const BatchNorm::Options& checked(const BatchNorm::Options& o) {
  STEADY_CHECK(Error, o.features >= 1, "BatchNorm: needs features >= 1; got {}", o.features);
  detail::check_eps("BatchNorm", o.eps);
  detail::check_momentum("BatchNorm", o.momentum);
  return o;
}

}  // namespace

BatchNorm::BatchNorm(const Options& options)
    : o(checked(options)),
      weight(add_parameter("weight", Tensor::ones({o.features}), Role::NormScale, o.affine)),
      bias(add_parameter("bias", Tensor::zeros({o.features}), Role::NormShift, o.affine && o.bias)),
      running_mean(add_buffer("running_mean", Tensor::zeros({o.features}), o.track_running_stats)),
      running_var(add_buffer("running_var", Tensor::ones({o.features}), o.track_running_stats)),
      num_batches_tracked(
          add_buffer("num_batches_tracked", Tensor::scalar(0, Dtype::I64), o.track_running_stats)),
      sync_(o.sync) {}

void BatchNorm::on_clone(const Module& original) {
  sync_ = static_cast<const BatchNorm&>(original).sync_;
}

Tensor BatchNorm::forward(const Tensor& x) { return normalize(x, false); }

Tensor BatchNorm::with_relu(const Tensor& x) {
  return run(x, [&](const Tensor& input) { return normalize(input, true); });
}

Tensor BatchNorm::with_relu_and_pool(const Tensor& x, std::int64_t kernel) {
  return run(x, [&](const Tensor& input) {
    if (sync_ || uses_running_statistics() || !pools_in_bands(input, kernel)) {
      return max_pool2d(normalize(input, true), kernel);
    }
    detail::check_features("BatchNorm", input, o.features);
    return updated(batch_norm_relu_pool(input, weight, bias, o.eps, kernel));
  });
}

bool BatchNorm::uses_running_statistics() const {
  return o.track_running_stats && mode() != Mode::Train;
}

Tensor BatchNorm::normalize(const Tensor& x, bool relu) {
  detail::check_features("BatchNorm", x, o.features);
  if (uses_running_statistics()) {
    return batch_norm_eval(x, running_mean, running_var, weight, bias, o.eps, relu);
  }
  if (!sync_) return updated(batch_norm(x, weight, bias, o.eps, relu));
  const Tensor y = updated(sync_batch_norm(x, weight, bias, o.eps));
  return relu ? steady::relu(y) : y;
}

Tensor BatchNorm::updated(BatchNormResult result) {
  if (o.track_running_stats && mode() == Mode::Train && state_updates()) {
    update_statistics(result.moments);
  }
  return std::move(result.y);
}

void BatchNorm::update_statistics(const std::vector<Moments>& moments) {
  if (moments.front().n == 0) return;
  detail::RunningUpdate update(
      {.mean = running_mean, .var = running_var, .count = num_batches_tracked},
      {.layer = "BatchNorm", .momentum = o.momentum, .check_finite = o.check_finite});
  update.add(moments);
  update.commit();
}

void BatchNorm::measure(const Tensor& x, const MeasureSink& sink) const {
  const Cut cut = cut_of("BatchNorm", x, uses_running_statistics());
  if (cut.columns.rows == 0) return;
  std::vector<Moments> moments(static_cast<std::size_t>(cut.columns.channels));
  Tensor normalized = Tensor::empty(x.shape(), x.dtype());
  Tensor stats = Tensor::empty({3, cut.columns.channels}, x.dtype());
  Tensor scratch = workspace(cut);
  dispatch_float("BatchNorm", x.dtype(), [&]<FloatElement T>() {
    column_moments<T>(cut.columns, x.data<T>(), moments, scratch.mutable_data<double>());
    if (cut.constant) {
      batch_norm_running_stats<T>(running_mean.data<T>(), running_var.data<T>(), o.eps,
                                  stats.mutable_data<T>());
    } else {
      batch_norm_stats<T>(moments, o.eps, stats.mutable_data<T>());
    }
    batch_norm_apply<T>(cut.columns, x.data<T>(), {}, {}, stats.data<T>(),
                        normalized.mutable_data<T>());
    detail::measure_range<T>(sink, "rstd", stats.data<T>(), 2 * cut.columns.channels, 1);
    if (o.track_running_stats) {
      detail::measure_running<T>(sink, moments, running_mean.data<T>(), running_var.data<T>(),
                                 o.eps);
    }
  });
  detail::measure_normalized(sink, normalized);
}

std::string BatchNorm::describe() const {
  return fmt::format("BatchNorm({}, eps={}, {}{}{})", o.features, o.eps,
                     detail::describe_running(o.track_running_stats, o.momentum),
                     !o.affine ? ", affine=false"
                     : !o.bias ? ", bias=false"
                               : "",
                     sync_ ? ", sync=true" : "");
}

std::string BatchNorm::statistics() const {
  if (!o.track_running_stats) return "";
  return mode() == Mode::Train ? "updating" : "frozen";
}

namespace detail {

NormKind batch_kind() {
  return {
      "batch(eps=1e-5[0..], momentum=0.1[0..1]|cumulative, affine=true, bias=true, track=true, "
      "sync=false, simulate=none|bf16|fp16, accumulate=f32|same, cast=after|before)",
      [](const NormOptions& options, std::int64_t features) {
        STEADY_CHECK(Error, !options.flag("sync") || options.text("simulate") == "none",
                     "norm 'batch': sync=true does not go with simulate={}",
                     options.text("simulate"));
        return make_norm_in_precision<BatchNorm>(options,
                                                 {.features = features,
                                                  .eps = options.number("eps"),
                                                  .momentum = momentum_of(options),
                                                  .affine = options.flag("affine"),
                                                  .bias = options.flag("bias"),
                                                  .track_running_stats = options.flag("track"),
                                                  .sync = options.flag("sync")});
      }};
}

}  // namespace detail
}  // namespace steady
