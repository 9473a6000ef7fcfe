#pragma once

#include <cstdint>
#include <span>
#include <steadygrad/core/kernels/pooling.hpp>
#include <steadygrad/layers/norm/column_stats.hpp>

// Batch normalization over the columns of [rows, channels] [Ioffe & Szegedy 2015, algorithm 1];
// T is float or double.
//   y = (x - mean) * rstd * gamma + beta,   rstd = 1 / sqrt(var + eps),   var biased, eps inside
// x, dy, y, dx, ddx, ddy, dx2: [rows, channels]. gamma, beta, their gradients: [channels].
// stats: [3, channels], the lines mean, mean_lo, rstd: the mean is mean + mean_lo. It comes from
// the batch (train: x moves it) or from running statistics (eval, frozen: constants), and the
// backward functions exist for both. An empty span stands for "absent": gamma 1, beta 0, an output
// nobody needs. Outputs are assigned, never added to, and overlap no other argument. Sizes that do
// not match throw ShapeError first. workspace: column_workspace(shape) doubles. Bits do not depend
// on the number of threads. With `relu` y = max(0, ...) in the same pass, and a backward function
// takes beta to tell where that was 0. No function touches running statistics but
// batch_norm_running_update, a pure function.

namespace steady {

/// Train mode: moments of the batch ([channels]), stats and y. One row gives y = beta; what rule a
/// caller has for that is the caller's. rows = 0 gives n = 0 and NaN stats.
template <class T>
void batch_norm_forward(const ColumnShape& shape, double eps, std::span<const T> x,
                        std::span<const T> gamma, std::span<const T> beta, std::span<T> y,
                        std::span<Moments> moments, std::span<T> stats, std::span<double> workspace,
                        bool relu = false);

/// stats from moments (biased variance): with column_moments, merge_moments and batch_norm_apply
/// the parts of batch_norm_forward, for statistics that span processes.
template <class T>
void batch_norm_stats(std::span<const Moments> moments, double eps, std::span<T> stats);

/// stats from running statistics: eval and frozen modes.
template <class T>
void batch_norm_running_stats(std::span<const T> running_mean, std::span<const T> running_var,
                              double eps, std::span<T> stats);

/// y from given stats: the whole forward of eval and frozen modes.
template <class T>
void batch_norm_apply(const ColumnShape& shape, std::span<const T> x, std::span<const T> gamma,
                      std::span<const T> beta, std::span<const T> stats, std::span<T> y,
                      bool relu = false);

/// max_pool2d_forward of relu(batch_norm_apply) of images x: [N, H, W, C], where the windows tile
/// them (kernels::windows_tile; ShapeError otherwise), without the array between the two.
template <class T>
void batch_norm_apply_pooled(const kernels::Pool2dGeometry& windows, std::span<const T> x,
                             std::span<const T> gamma, std::span<const T> beta,
                             std::span<const T> stats, std::span<T> y,
                             std::span<std::int32_t> index);

/// max_pool2d_backward of dy where windows tile: the dy of batch_norm_backward, made in parts.
template <class T>
class PooledGradient final : public ColumnSource<T> {
 public:
  PooledGradient(const kernels::Pool2dGeometry& windows, std::span<const T> dy,
                 std::span<const std::int32_t> index);
  [[nodiscard]] std::size_t size() const override;
  [[nodiscard]] std::int64_t rows_at_once() const override;
  [[nodiscard]] const T* make(std::int64_t first, std::int64_t count) const override;

 private:
  const kernels::Pool2dGeometry windows_;
  const std::span<const T> dy_;
  const std::span<const std::int32_t> index_;
};

/// new = (1 - momentum) * running + momentum * batch, with the batch's mean and UNBIASED variance.
/// new_mean may be running_mean and new_var running_var. Throws Error, before anything is written,
/// when momentum is outside [0, 1] or a channel has less than two values.
template <class T>
void batch_norm_running_update(std::span<const Moments> moments, double momentum,
                               std::span<const T> running_mean, std::span<const T> running_var,
                               std::span<T> new_mean, std::span<T> new_var);

/// What a backward has to know of a ReLU behind the norm.
template <class T>
struct BatchNormRelu {
  bool relu = false;
  std::span<const T> beta = {};
};

/// First derivative in train mode. dx, dgamma, dbeta may each be empty.
template <class T>
void batch_norm_backward(const ColumnShape& shape, std::span<const T> x, const ColumnRows<T>& dy,
                         std::span<const T> gamma, std::span<const T> stats, std::span<T> dx,
                         std::span<T> dgamma, std::span<T> dbeta, std::span<double> workspace,
                         const BatchNormRelu<T>& relu = {});

/// The second half of batch_norm_backward, after column_sums: dx from s1 = sum of dy and
/// s2 = sum of dy * (x - mean), both [channels], over `count` rows in all (rows of every process).
/// Both empty: statistics that are constants.
template <class T>
void batch_norm_backward_input(const ColumnShape& shape, double count, std::span<const T> x,
                               const ColumnRows<T>& dy, std::span<const T> gamma,
                               std::span<const T> stats, std::span<const double> s1,
                               std::span<const double> s2, std::span<T> dx,
                               const BatchNormRelu<T>& relu = {});

/// First derivative in eval and frozen modes: the statistics are constants.
template <class T>
void batch_norm_backward_frozen(const ColumnShape& shape, std::span<const T> x,
                                const ColumnRows<T>& dy, std::span<const T> gamma,
                                std::span<const T> stats, std::span<T> dx, std::span<T> dgamma,
                                std::span<T> dbeta, std::span<double> workspace,
                                const BatchNormRelu<T>& relu = {});

/// Derivative of batch_norm_backward. ddx, ddgamma, ddbeta are the cotangents of its outputs dx,
/// dgamma, dbeta (empty: zero); ddy, dx2, dgamma2 receive the gradients of its inputs dy, x, gamma
/// (each may be empty).
template <class T>
void batch_norm_double_backward(const ColumnShape& shape, std::span<const T> x,
                                std::span<const T> dy, std::span<const T> gamma,
                                std::span<const T> stats, std::span<const T> ddx,
                                std::span<const T> ddgamma, std::span<const T> ddbeta,
                                std::span<T> ddy, std::span<T> dx2, std::span<T> dgamma2,
                                std::span<double> workspace);

/// Derivative of batch_norm_backward_frozen, arguments as above.
template <class T>
void batch_norm_double_backward_frozen(const ColumnShape& shape, std::span<const T> x,
                                       std::span<const T> dy, std::span<const T> gamma,
                                       std::span<const T> stats, std::span<const T> ddx,
                                       std::span<const T> ddgamma, std::span<const T> ddbeta,
                                       std::span<T> ddy, std::span<T> dx2, std::span<T> dgamma2,
                                       std::span<double> workspace);

}  // namespace steady
