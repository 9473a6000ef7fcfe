#include <steadygrad/layers/norm/batch_norm_kernel.hpp>

#include <algorithm>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/scratch.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/layers/norm/column_apply_kernel.hpp>
#include <steadygrad/layers/norm/row_stats.hpp>
#include <vector>

// Derivation, one channel of M elements; m(.) is the mean over the channel, u = dy:
//   xhat = (x - mean) * r,  r = (var + eps)^(-1/2),  y = gamma * xhat + beta.
// Train: from d mean = m(dx) and d r = -r^2 m(xhat dx) follows d xhat = r * P(dx) with
//   P(v) = v - m(v) - xhat * m(v * xhat),
// symmetric, hence dx = gamma * r * P(u). With s1 = sum u and s2 = sum u * (x - mean):
//   dbeta = s1,  dgamma = r * s2,
//   dx = a * u + b * (x - mean) + k,  a = gamma * r,  b = -a * r^2 * s2 / M,  k = -a * s1 / M.
// Frozen: mean and r are constants, dx = a * u: the same with s1 = s2 = 0.
// Its derivative: batch_norm_double_backward.cpp.

namespace steady {

using detail::check_span;
using detail::ColumnPlan;

namespace {

// Element c of an array that may be absent.
template <class T>
double at(std::span<const T> values, std::int64_t c, double absent) {
  return values.empty() ? absent : static_cast<double>(values[static_cast<std::size_t>(c)]);
}

/// Statistics of one channel from the lines of stats.
template <class T>
struct Channel {
  T mean;
  double low, rstd;
  Channel(std::span<const T> stats, std::int64_t c)
      : mean(stats[static_cast<std::size_t>(c)]),
        low(at(stats, static_cast<std::int64_t>(stats.size() / 3) + c, 0)),
        rstd(at(stats, static_cast<std::int64_t>(stats.size() / 3) * 2 + c, 0)) {}
};

/// `lines` coefficients per channel, one line after the other.
template <class T>
class Lines {
 public:
  Lines(std::int64_t channels, std::size_t lines)
      : channels_(static_cast<std::size_t>(channels)), values_(channels_ * lines) {}
  T& operator()(std::size_t line, std::int64_t c) {
    return values_[line * channels_ + static_cast<std::size_t>(c)];
  }
  [[nodiscard]] std::span<const T> operator[](std::size_t line) const {
    return std::span(values_).subspan(line * channels_, channels_);
  }

 private:
  std::size_t channels_;
  std::vector<T> values_;
};

/// The lines mean, scale and shift of y = (x - mean) * scale + shift.
template <class T>
Lines<T> affine_lines(std::span<const T> gamma, std::span<const T> beta, std::span<const T> stats) {
  const std::int64_t channels = std::ssize(stats) / 3;
  Lines<T> k(channels, 3);
  for (std::int64_t c = 0; c < channels; ++c) {
    const Channel<T> channel(stats, c);
    const double scale = channel.rstd * at(gamma, c, 1);
    k(0, c) = channel.mean;
    k(1, c) = static_cast<T>(scale);
    k(2, c) = static_cast<T>(at(beta, c, 0) - channel.low * scale);
  }
  return k;
}

/// Where the ReLU behind the norm passes a gradient: from the lines that made y.
template <class T>
struct Gate {
  Lines<T> lines;
  ColumnGate<T> columns = {};

  Gate(const BatchNormRelu<T>& relu, std::span<const T> gamma, std::span<const T> stats)
      : lines(relu.relu ? affine_lines<T>(gamma, relu.beta, stats) : Lines<T>(0, 0)) {
    if (relu.relu) columns = {lines[1], lines[2]};
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() = default;
};

constexpr std::int64_t TaskElements = 16384;  // of whole bands

/// The bands of windows that tile their images; throws ShapeError for others.
std::int64_t bands_of(const char* op, const kernels::Pool2dGeometry& windows) {
  windows.check(op);
  STEADY_CHECK(ShapeError, kernels::windows_tile(windows),
               "{}: needs windows side by side that cover every image; got kernel {} x {}, stride "
               "{} x {}, images of {} x {}",
               op, windows.kernel[0], windows.kernel[1], windows.stride[0], windows.stride[1],
               windows.height, windows.width);
  return windows.batch * windows.out_height();
}

}  // namespace

template <class T>
void batch_norm_apply(const ColumnShape& shape, std::span<const T> x, std::span<const T> gamma,
                      std::span<const T> beta, std::span<const T> stats, std::span<T> y,
                      bool relu) {
  const char* op = "batch_norm_apply";
  ColumnPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.channels, true);
  check_span(op, "beta", beta.size(), shape.channels, true);
  check_span(op, "stats", stats.size(), 3 * shape.channels, false);
  check_span(op, "y", y.size(), shape.elements(), false);
  const Lines<T> k = affine_lines<T>(gamma, beta, stats);
  column_affine<T>(shape, {k[0], k[1], k[2]}, x, y, relu);
}

template <class T>
void batch_norm_forward(const ColumnShape& shape, double eps, std::span<const T> x,
                        std::span<const T> gamma, std::span<const T> beta, std::span<T> y,
                        std::span<Moments> moments, std::span<T> stats, std::span<double> workspace,
                        bool relu) {
  const char* op = "batch_norm_forward";
  ColumnPlan::check(op, shape);
  check_span(op, "gamma", gamma.size(), shape.channels, true);
  check_span(op, "beta", beta.size(), shape.channels, true);
  check_span(op, "y", y.size(), shape.elements(), false);
  check_span(op, "stats", stats.size(), 3 * shape.channels, false);
  column_moments<T>(shape, x, moments, workspace);
  batch_norm_stats<T>(moments, eps, stats);
  batch_norm_apply<T>(shape, x, gamma, beta, stats, y, relu);
}

template <class T>
void batch_norm_backward_input(const ColumnShape& shape, double count, std::span<const T> x,
                               const ColumnRows<T>& dy, std::span<const T> gamma,
                               std::span<const T> stats, std::span<const double> s1,
                               std::span<const double> s2, std::span<T> dx,
                               const BatchNormRelu<T>& relu) {
  const char* op = "batch_norm_backward_input";
  ColumnPlan::check(op, shape);
  check_span(op, "x", x.size(), shape.elements(), false);
  check_span(op, "dy", dy.size(), shape.elements(), false);
  check_span(op, "gamma", gamma.size(), shape.channels, true);
  check_span(op, "stats", stats.size(), 3 * shape.channels, false);
  check_span(op, "s1", s1.size(), shape.channels, true);
  check_span(op, "s2", s2.size(), static_cast<std::int64_t>(s1.size()), false);
  check_span(op, "dx", dx.size(), shape.elements(), false);
  check_span(op, "beta", relu.beta.size(), shape.channels, true);
  const Gate<T> gate(relu, gamma, stats);
  Lines<T> k(shape.channels, 4);
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    const Channel<T> channel(stats, c);
    const double scale = at(gamma, c, 1) * channel.rstd;
    const double slope = -scale * channel.rstd * channel.rstd * at(s2, c, 0) / count;
    k(0, c) = channel.mean;
    k(1, c) = static_cast<T>(scale);
    k(2, c) = static_cast<T>(slope);
    k(3, c) = static_cast<T>(-scale * at(s1, c, 0) / count - slope * channel.low);
  }
  column_gradient<T>(shape, {k[0], k[1], k[2], k[3]}, x, dy, dx, gate.columns);
}

template <class T>
void batch_norm_apply_pooled(const kernels::Pool2dGeometry& windows, std::span<const T> x,
                             std::span<const T> gamma, std::span<const T> beta,
                             std::span<const T> stats, std::span<T> y,
                             std::span<std::int32_t> index) {
  const char* op = "batch_norm_apply_pooled";
  const std::int64_t bands = bands_of(op, windows);
  check_span(op, "x", x.size(), windows.x_size(), false);
  check_span(op, "gamma", gamma.size(), windows.channels, true);
  check_span(op, "beta", beta.size(), windows.channels, true);
  check_span(op, "stats", stats.size(), 3 * windows.channels, false);
  check_span(op, "y", y.size(), windows.y_size(), false);
  check_span(op, "index", index.size(), windows.y_size(), false);
  const Lines<T> k = affine_lines<T>(gamma, beta, stats);
  const std::int64_t rows = windows.kernel[0] * windows.width, band = rows * windows.channels;
  struct Normalized;
  parallel_for(bands, std::max<std::int64_t>(TaskElements / std::max<std::int64_t>(band, 1), 1),
               [&](std::int64_t begin, std::int64_t end) {
                 const auto count = static_cast<std::size_t>((end - begin) * band);
                 const auto from = static_cast<std::size_t>(begin * band);
                 const std::span<T> room =
                     kernels::thread_scratch<Normalized>().template take<T>((end - begin) * band);
                 column_affine<T>({(end - begin) * rows, windows.channels}, {k[0], k[1], k[2]},
                                  x.subspan(from, count), room, true);
                 kernels::max_pool2d_forward_bands<T>(windows, begin, end - begin, room.data(),
                                                      y.data(), index.data());
               });
}

template <class T>
PooledGradient<T>::PooledGradient(const kernels::Pool2dGeometry& windows, std::span<const T> dy,
                                  std::span<const std::int32_t> index)
    : windows_(windows), dy_(dy), index_(index) {
  const char* op = "PooledGradient";
  bands_of(op, windows);
  check_span(op, "dy", dy.size(), windows.y_size(), false);
  check_span(op, "index", index.size(), windows.y_size(), false);
}

template <class T>
std::size_t PooledGradient<T>::size() const {
  return static_cast<std::size_t>(windows_.x_size());
}

template <class T>
std::int64_t PooledGradient<T>::rows_at_once() const {
  return windows_.kernel[0] * windows_.width;
}

template <class T>
const T* PooledGradient<T>::make(std::int64_t first, std::int64_t count) const {
  struct Made;
  const std::int64_t rows = rows_at_once();
  const std::int64_t begin = first / rows, end = (first + count + rows - 1) / rows;
  const std::span<T> room =
      kernels::thread_scratch<Made>().template take<T>((end - begin) * rows * windows_.channels);
  kernels::max_pool2d_backward_bands<T>(windows_, begin, end - begin, dy_.data(), index_.data(),
                                        room.data());
  return room.data() + (first - begin * rows) * windows_.channels;
}

template class PooledGradient<float>;
template class PooledGradient<double>;

namespace {

template <class T>
void backward(const char* op, bool frozen, const ColumnShape& shape, std::span<const T> x,
              const ColumnRows<T>& dy, std::span<const T> gamma, std::span<const T> stats,
              std::span<T> dx, std::span<T> dgamma, std::span<T> dbeta, std::span<double> workspace,
              const BatchNormRelu<T>& relu) {
  ColumnPlan::check(op, shape);
  check_span(op, "gamma", gamma.size(), shape.channels, true);
  check_span(op, "beta", relu.beta.size(), shape.channels, true);
  check_span(op, "stats", stats.size(), 3 * shape.channels, false);
  check_span(op, "dx", dx.size(), shape.elements(), true);
  check_span(op, "dgamma", dgamma.size(), shape.channels, true);
  check_span(op, "dbeta", dbeta.size(), shape.channels, true);
  check_span(op, "workspace", workspace.size(), column_workspace(shape), false);
  const auto channels = static_cast<std::size_t>(shape.channels);
  const std::span<double> s1 = workspace.last(2 * channels).first(channels);
  const std::span<double> s2 = workspace.last(channels);
  if (!frozen || !dgamma.empty() || !dbeta.empty()) {
    const Gate<T> gate(relu, gamma, stats);
    column_sums<T>(shape, x, dy, stats, s1, s2, workspace, gate.columns);
  }
  for (std::size_t c = 0; c < dgamma.size(); ++c) {
    dgamma[c] = static_cast<T>(s2[c] * static_cast<double>(stats[2 * channels + c]));
  }
  for (std::size_t c = 0; c < dbeta.size(); ++c) dbeta[c] = static_cast<T>(s1[c]);
  if (dx.empty()) return;
  const auto rows = static_cast<double>(shape.rows);
  if (frozen) {
    batch_norm_backward_input<T>(shape, rows, x, dy, gamma, stats, {}, {}, dx, relu);
  } else {
    batch_norm_backward_input<T>(shape, rows, x, dy, gamma, stats, s1, s2, dx, relu);
  }
}

}  // namespace

template <class T>
void batch_norm_backward(const ColumnShape& shape, std::span<const T> x, const ColumnRows<T>& dy,
                         std::span<const T> gamma, std::span<const T> stats, std::span<T> dx,
                         std::span<T> dgamma, std::span<T> dbeta, std::span<double> workspace,
                         const BatchNormRelu<T>& relu) {
  backward("batch_norm_backward", false, shape, x, dy, gamma, stats, dx, dgamma, dbeta, workspace,
           relu);
}

template <class T>
void batch_norm_backward_frozen(const ColumnShape& shape, std::span<const T> x,
                                const ColumnRows<T>& dy, std::span<const T> gamma,
                                std::span<const T> stats, std::span<T> dx, std::span<T> dgamma,
                                std::span<T> dbeta, std::span<double> workspace,
                                const BatchNormRelu<T>& relu) {
  backward("batch_norm_backward_frozen", true, shape, x, dy, gamma, stats, dx, dgamma, dbeta,
           workspace, relu);
}

template void batch_norm_apply(const ColumnShape&, std::span<const float>, std::span<const float>,
                               std::span<const float>, std::span<const float>, std::span<float>,
                               bool);
template void batch_norm_apply(const ColumnShape&, std::span<const double>, std::span<const double>,
                               std::span<const double>, std::span<const double>, std::span<double>,
                               bool);
template void batch_norm_apply_pooled(const kernels::Pool2dGeometry&, std::span<const float>,
                                      std::span<const float>, std::span<const float>,
                                      std::span<const float>, std::span<float>,
                                      std::span<std::int32_t>);
template void batch_norm_apply_pooled(const kernels::Pool2dGeometry&, std::span<const double>,
                                      std::span<const double>, std::span<const double>,
                                      std::span<const double>, std::span<double>,
                                      std::span<std::int32_t>);
template void batch_norm_forward(const ColumnShape&, double, std::span<const float>,
                                 std::span<const float>, std::span<const float>, std::span<float>,
                                 std::span<Moments>, std::span<float>, std::span<double>, bool);
template void batch_norm_forward(const ColumnShape&, double, std::span<const double>,
                                 std::span<const double>, std::span<const double>,
                                 std::span<double>, std::span<Moments>, std::span<double>,
                                 std::span<double>, bool);
template void batch_norm_backward_input(const ColumnShape&, double, std::span<const float>,
                                        const ColumnRows<float>&, std::span<const float>,
                                        std::span<const float>, std::span<const double>,
                                        std::span<const double>, std::span<float>,
                                        const BatchNormRelu<float>&);
template void batch_norm_backward_input(const ColumnShape&, double, std::span<const double>,
                                        const ColumnRows<double>&, std::span<const double>,
                                        std::span<const double>, std::span<const double>,
                                        std::span<const double>, std::span<double>,
                                        const BatchNormRelu<double>&);
#define STEADY_BACKWARD(name, T)                                                         \
  template void name(const ColumnShape&, std::span<const T>, const ColumnRows<T>&,       \
                     std::span<const T>, std::span<const T>, std::span<T>, std::span<T>, \
                     std::span<T>, std::span<double>, const BatchNormRelu<T>&)
STEADY_BACKWARD(batch_norm_backward, float);
STEADY_BACKWARD(batch_norm_backward, double);
STEADY_BACKWARD(batch_norm_backward_frozen, float);
STEADY_BACKWARD(batch_norm_backward_frozen, double);
#undef STEADY_BACKWARD

}  // namespace steady
