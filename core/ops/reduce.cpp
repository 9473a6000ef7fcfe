#include <steadygrad/core/ops/reduce.hpp>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/expand.hpp>
#include <steadygrad/core/kernels/reduce.hpp>
#include <steadygrad/core/ops/check.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady {
namespace {

using kernels::AxisMask;

/// The shapes of one reduction.
struct Reduction {
  AxisMask mask = 0;
  Shape full{};
  Shape kept{};            ///< the reduced axes with extent 1
  Shape result{};          ///< what the operation returns
  std::int64_t count = 1;  ///< elements behind each result

  /// A tensor of shape `result` repeated to `full`.
  [[nodiscard]] Tensor spread(const Tensor& t) const {
    return broadcast_to(reshape(t, kept), full);
  }
};

Reduction plan(const Shape& full, AxisMask mask, bool keepdim) {
  Reduction r{.mask = mask, .full = full, .kept = full};
  Shape left;
  for (int axis = 0; axis < full.rank(); ++axis) {
    if ((mask >> axis & 1U) != 0) {
      r.kept = r.kept.with(axis, 1);
      r.count *= full[axis];
    } else {
      left = left.appended(full[axis]);
    }
  }
  r.result = keepdim ? r.kept : left;
  return r;
}

Reduction plan(const char* op, const Tensor& x, const Axes& axes, bool keepdim) {
  detail::check_float(op, "x", x);
  return plan(x.shape(), axes.mask(x.shape(), op), keepdim);
}

Reduction plan_all(const char* op, const Tensor& x) {
  detail::check_float(op, "x", x);
  return plan(x.shape(), kernels::all_axes(x.rank()), false);
}

/// y = factor * sum of x.
Tensor scaled_sum(const char* op, const Tensor& x, const Reduction& r, double factor) {
  Tensor y = Tensor::empty(r.result, x.dtype());
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    kernels::sum<T>(x.data<T>(), r.full.extents(), r.mask, y.mutable_data<T>(op), factor);
  });
  return record(op, y, {x}, {}, [r, factor](BackwardCall& call) {
    call.give(0, [&] { return r.spread(factor == 1.0 ? call.grad() : call.grad() * factor); });
  });
}

Tensor mean_of(const Tensor& x, const Reduction& r) {
  STEADY_CHECK(ShapeError, r.count > 0, "mean: needs at least one element to average; got x {}",
               describe(x));
  return scaled_sum("mean", x, r, 1.0 / static_cast<double>(r.count));
}

/// x - mean(x). The second pass takes away the rounding of the mean, which in float32 is large
/// beside a spread far below the mean.
Tensor centered(const Tensor& x, AxisMask mask) {
  const Reduction r = plan(x.shape(), mask, /*keepdim=*/true);
  const Tensor rough = x - mean_of(x, r);
  return rough - mean_of(rough, r);
}

/// dx = dy * 2 (x - mean) / divisor; the derivative of the mean drops out.
Tensor variance(const Tensor& x, const Reduction& r, bool unbiased) {
  const std::int64_t divisor = r.count - (unbiased ? 1 : 0);
  STEADY_CHECK(ShapeError, divisor > 0, "var: needs at least {} elements per result; got x {}",
               unbiased ? "2 (1 when biased)" : "1", describe(x));
  Tensor y = Tensor::empty(r.result, x.dtype());
  dispatch_float("var", x.dtype(), [&]<FloatElement T>() {
    kernels::variance<T>(x.data<T>(), r.full.extents(), r.mask, unbiased ? 1 : 0,
                         y.mutable_data<T>("var"));
  });
  return record("var", y, {x}, {x},
                [r, factor = 2.0 / static_cast<double>(divisor)](BackwardCall& call) {
                  call.give(0, [&] {
                    return centered(call.saved(0), r.mask) * reshape(call.grad() * factor, r.kept);
                  });
                });
}

/// d max / d x as a constant: shared equally between ties.
Tensor max_weights(const Tensor& x, const Tensor& y, const Reduction& r) {
  Tensor w = Tensor::empty(x.shape(), x.dtype());
  dispatch_float("max", x.dtype(), [&]<FloatElement T>() {
    kernels::amax_weights<T>(x.data<T>(), r.full.extents(), r.mask, y.data<T>(),
                             w.mutable_data<T>("max"));
  });
  return w;
}

Tensor maximum_over(const Tensor& x, const Reduction& r) {
  STEADY_CHECK(ShapeError, r.count > 0, "max: needs at least one element; got x {}", describe(x));
  Tensor y = Tensor::empty(r.result, x.dtype());
  dispatch_float("max", x.dtype(), [&]<FloatElement T>() {
    kernels::amax<T>(x.data<T>(), r.full.extents(), r.mask, y.mutable_data<T>("max"));
  });
  return record("max", y, {x}, {x, y}, [r](BackwardCall& call) {
    call.give(0, [&] {
      return max_weights(call.saved(0), call.saved(1), r) * reshape(call.grad(), r.kept);
    });
  });
}

/// Throws unless `small` broadcasts to exactly `large`.
void check_broadcasts(const char* op, const Tensor& x, const Shape& small, const Shape& large,
                      const Shape& asked) {
  bool fits = small.rank() <= large.rank();
  for (int i = 1; fits && i <= small.rank(); ++i) {
    fits = small[-i] == large[-i] || small[-i] == 1;
  }
  STEADY_CHECK(ShapeError, fits, "{}: {} does not broadcast to {}; got x {}, shape {}", op,
               to_string(small), to_string(large), describe(x), to_string(asked));
}

}  // namespace

Axes::Axes(std::span<const int> axes) : count_(static_cast<int>(axes.size())) {
  STEADY_CHECK(ShapeError, count_ <= Shape::MaxRank, "axes: at most {}; got {}", Shape::MaxRank,
               count_);
  std::ranges::copy(axes, axes_.begin());
}

std::uint32_t Axes::mask(const Shape& shape, const char* op) const {
  STEADY_CHECK(ShapeError, count_ > 0, "{}: needs at least one axis; leave out the axes for all",
               op);
  std::uint32_t result = 0;
  for (int i = 0; i < count_; ++i) {
    const int named = axes_[static_cast<std::size_t>(i)];
    const std::uint32_t bit = 1U << shape.axis(named, op);
    STEADY_CHECK(ShapeError, (result & bit) == 0, "{}: axis {} is named twice; got x {}", op, named,
                 to_string(shape));
    result |= bit;
  }
  return result;
}

Tensor sum(const Tensor& x) { return scaled_sum("sum", x, plan_all("sum", x), 1.0); }
Tensor sum(const Tensor& x, const Axes& axes, bool keepdim) {
  return scaled_sum("sum", x, plan("sum", x, axes, keepdim), 1.0);
}

Tensor mean(const Tensor& x) { return mean_of(x, plan_all("mean", x)); }
Tensor mean(const Tensor& x, const Axes& axes, bool keepdim) {
  return mean_of(x, plan("mean", x, axes, keepdim));
}

Tensor var(const Tensor& x) { return variance(x, plan_all("var", x), true); }
Tensor var(const Tensor& x, const Axes& axes, const VarOptions& options) {
  return variance(x, plan("var", x, axes, options.keepdim), options.unbiased);
}

Tensor max(const Tensor& x) { return maximum_over(x, plan_all("max", x)); }
Tensor max(const Tensor& x, const Axes& axes, bool keepdim) {
  return maximum_over(x, plan("max", x, axes, keepdim));
}

Tensor argmax(const Tensor& x, int axis) {
  detail::check_float("argmax", "x", x);
  const int at = x.shape().axis(axis, "argmax");
  STEADY_CHECK(ShapeError, x.dim(at) > 0, "argmax: needs at least one element; got x {}",
               describe(x));
  Tensor index = Tensor::empty(x.shape().without(at), Dtype::I64);
  dispatch_float("argmax", x.dtype(), [&]<FloatElement T>() {
    kernels::argmax<T>(x.data<T>(), x.shape().numel(0, at), x.dim(at),
                       x.shape().numel(at + 1, x.rank()),
                       index.mutable_data<std::int64_t>("argmax"));
  });
  return index;
}

std::int64_t count_correct(const Tensor& logits, const Tensor& target) {
  const Tensor index = argmax(logits);
  check_defined("count_correct", "target", target);
  STEADY_CHECK(ShapeError, target.dtype() == Dtype::I64 && target.shape() == index.shape(),
               "count_correct: the target must be i64 {}; got logits {}, target {}",
               to_string(index.shape()), describe(logits), describe(target));
  const auto found = index.data<std::int64_t>();
  return std::inner_product(found.begin(), found.end(), target.data<std::int64_t>().begin(),
                            std::int64_t{0}, std::plus<>(),
                            [](auto a, auto b) -> std::int64_t { return a == b ? 1 : 0; });
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  detail::check_float("sum_to", "x", x);
  check_broadcasts("sum_to", x, shape, x.shape(), shape);
  if (x.shape() == shape) return x;
  Tensor y = Tensor::empty(shape, x.dtype());
  dispatch_float("sum_to", x.dtype(), [&]<FloatElement T>() {
    kernels::sum_to<T>(x.data<T>(), x.shape().extents(), y.mutable_data<T>("sum_to"),
                       shape.extents());
  });
  return record("sum_to", y, {x}, {}, [from = x.shape()](BackwardCall& call) {
    call.give(0, [&] { return broadcast_to(call.grad(), from); });
  });
}

Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  detail::check_float("broadcast_to", "x", x);
  check_broadcasts("broadcast_to", x, x.shape(), shape, shape);
  if (x.shape() == shape) return x;
  Tensor y = Tensor::empty(shape, x.dtype());
  dispatch_float("broadcast_to", x.dtype(), [&]<FloatElement T>() {
    kernels::expand<T>(x.data<T>(), x.shape().extents(), y.mutable_data<T>("broadcast_to"),
                       shape.extents());
  });
  return record("broadcast_to", y, {x}, {}, [from = x.shape()](BackwardCall& call) {
    call.give(0, [&] { return sum_to(call.grad(), from); });
  });
}

}  // namespace steady
