#include <steadygrad/core/ops/loss.hpp>

#include <array>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/loss.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady {
namespace {

/// The scalars of one call, captured by its backwards.
struct Rows {
  std::int64_t rows;
  std::int64_t classes;
  std::int64_t ignore_index;
  double label_smoothing;
};

/// The constants every backward needs again. class_weight may be undefined; lse: f64 [rows].
struct Constants {
  Tensor target;
  Tensor lse;
  Tensor class_weight;
};

template <class T>
kernels::CrossEntropy<T> kernel_options(const Rows& r, const Tensor& class_weight) {
  return {.rows = r.rows,
          .classes = r.classes,
          .ignore_index = r.ignore_index,
          .label_smoothing = r.label_smoothing,
          .class_weight = class_weight.defined() ? class_weight.data<T>() : std::span<const T>{}};
}

/// Derivative of sum(v * gradient) by the logits and by dloss; see kernels/loss.hpp. It has no
/// derivative of its own: a third one is refused by name.
std::array<Tensor, 2> second(const Rows& r, const Tensor& v, const Tensor& dloss,
                             const Tensor& logits, const Constants& c) {
  Tensor dx = Tensor::empty(logits.shape(), logits.dtype());
  Tensor ddloss = Tensor::empty({r.rows}, logits.dtype());
  dispatch_float("cross_entropy", logits.dtype(), [&]<FloatElement T>() {
    kernels::cross_entropy_second<T>(
        kernel_options<T>(r, c.class_weight), v.data<T>(), dloss.data<T>(), logits.data<T>(),
        c.target.data<std::int64_t>(), c.lse.data<double>(),
        dx.mutable_data<T>("cross_entropy second"), ddloss.mutable_data<T>("cross_entropy second"));
  });
  return record("cross_entropy_second", std::array{dx, ddloss}, {v, dloss, logits}, {},
                NoBackward{});
}

/// Where the gradient goes. When the tape alone holds the logits, which then nobody can read again,
/// their own memory: with a large vocabulary there is no second buffer of that size.
Tensor gradient_memory(const Tensor& logits) {
  return logits.unique() && !recording() ? logits.detach()
                                         : Tensor::empty(logits.shape(), logits.dtype());
}

/// dlogits for dloss of one element (for all rows) or one per row.
Tensor gradient(const Rows& r, const Tensor& dloss, const Tensor& logits, const Constants& c) {
  Tensor dx = gradient_memory(logits);
  dispatch_float("cross_entropy", logits.dtype(), [&]<FloatElement T>() {
    kernels::cross_entropy_backward<T>(kernel_options<T>(r, c.class_weight), dloss.data<T>(),
                                       logits.data<T>(), c.target.data<std::int64_t>(),
                                       c.lse.data<double>(),
                                       dx.mutable_data<T>("cross_entropy backward"));
  });
  return record("cross_entropy_gradient", dx, {dloss, logits},
                {dloss, logits, c.target, c.lse, c.class_weight}, [r](BackwardCall& call) {
                  const Tensor& g = call.saved(0);
                  const auto [by_logits, by_rows] =
                      second(r, call.grad(), g, call.saved(1),
                             {call.saved(2), call.saved(3), call.saved(4)});
                  if (call.needs(0)) {
                    call.give(0, reshape(g.numel() == r.rows ? by_rows : sum(by_rows), g.shape()));
                  }
                  call.give(1, by_logits);
                });
}

Rows check(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& o) {
  check_defined("cross_entropy", "logits", logits);
  check_defined("cross_entropy", "target", target);
  STEADY_CHECK(ShapeError, is_float(logits.dtype()) && target.dtype() == Dtype::I64,
               "cross_entropy: needs floating logits and an i64 target; got logits {}, target {}",
               describe(logits), describe(target));
  STEADY_CHECK(ShapeError,
               logits.rank() >= 1 && logits.dim(-1) >= 1 &&
                   target.shape() == logits.shape().slice(0, logits.rank() - 1),
               "cross_entropy: logits [..., C] (class axis last) need a target [...]; got logits "
               "{}, target {}",
               describe(logits), describe(target));
  const Rows r{target.numel(), logits.dim(-1), o.ignore_index, o.label_smoothing};
  if (o.class_weight.defined()) {
    check_same_dtype("cross_entropy", logits, o.class_weight);
    STEADY_CHECK(ShapeError, o.class_weight.shape() == Shape{r.classes},
                 "cross_entropy: class_weight must be [C]; got class_weight {}, logits {}",
                 describe(o.class_weight), describe(logits));
    STEADY_CHECK(Error, !needs_gradient(o.class_weight),
                 "cross_entropy: class_weight is a constant; got one that requires a gradient, "
                 "call detach()");
  }
  dispatch_float("cross_entropy", logits.dtype(), [&]<FloatElement T>() {
    kernels::check_cross_entropy<T>(kernel_options<T>(r, o.class_weight),
                                    target.data<std::int64_t>());
  });
  return r;
}

}  // namespace

CrossEntropyResult cross_entropy_with_count(const Tensor& logits, const Tensor& target,
                                            const CrossEntropyOptions& options) {
  const Rows r = check(logits, target, options);
  const bool by_row = options.reduction == Reduction::None;
  Tensor losses = by_row ? Tensor::empty(target.shape(), logits.dtype()) : Tensor{};
  Tensor lse = Tensor::empty({r.rows}, Dtype::F64);
  kernels::CrossEntropySums sums;
  dispatch_float("cross_entropy", logits.dtype(), [&]<FloatElement T>() {
    sums = kernels::cross_entropy_forward<T>(
        kernel_options<T>(r, options.class_weight), logits.data<T>(), target.data<std::int64_t>(),
        by_row ? losses.mutable_data<T>("cross_entropy") : std::span<T>{},
        lse.mutable_data<double>("cross_entropy"));
  });
  // No weight at all: 0 instead of 0 / 0, for the loss and for its gradient.
  double factor = 1;
  if (options.reduction == Reduction::Mean) factor = sums.weight != 0 ? 1 / sums.weight : 0;
  const Tensor loss =
      by_row ? losses : Tensor::scalar(factor == 0 ? 0 : sums.loss * factor, logits.dtype());
  return {record("cross_entropy", loss, {logits}, {logits, target, lse, options.class_weight},
                 [r, factor](BackwardCall& call) {
                   const Tensor& dy = call.grad();
                   const Constants constants{call.saved(1), call.saved(2), call.saved(3)};
                   call.give(0, [&] {
                     return gradient(r, factor == 1 ? dy : dy * factor, call.saved(0), constants);
                   });
                 }),
          sums.weight, sums.used};
}

Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                     const CrossEntropyOptions& options) {
  return cross_entropy_with_count(logits, target, options).loss;
}

}  // namespace steady
