#include <steadygrad/layers/norm/running_update.hpp>

#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/batch_norm_kernel.hpp>

namespace steady::detail {

RunningUpdate::RunningUpdate(const RunningBuffers& buffers, const Options& options)
    : buffers_(buffers),
      o_(options),
      mean_(buffers.mean.detached_copy()),
      var_(buffers.var.defined() ? buffers.var.detached_copy()
                                 : Tensor::zeros(mean_.shape(), mean_.dtype())),
      count_(buffers.count.data<std::int64_t>()[0]) {}

void RunningUpdate::add(std::span<const Moments> batch) {
  ++count_;
  const double momentum = o_.momentum.value_or(1.0 / static_cast<double>(count_));
  dispatch_float(o_.layer, mean_.dtype(), [&]<FloatElement T>() {
    const std::span<T> mean = mean_.mutable_data<T>(), var = var_.mutable_data<T>();
    batch_norm_running_update<T>(batch, momentum, mean, var, mean, var);
    for (std::size_t c = 0; o_.check_finite && c < batch.size(); ++c) {
      STEADY_CHECK(NonFiniteError, std::isfinite(mean[c]) && std::isfinite(var[c]),
                   "{}: training step {} would spoil the running statistics: channel {} of the "
                   "batch has mean {} and variance {}; no buffer was changed",
                   o_.layer, count_, c, batch[c].mean, batch[c].variance());
    }
  });
}

void RunningUpdate::commit() {
  buffers_.mean.copy_from(mean_, o_.layer);
  if (buffers_.var.defined()) buffers_.var.copy_from(var_, o_.layer);
  buffers_.count.mutable_data<std::int64_t>(o_.layer)[0] = count_;
}

}  // namespace steady::detail
