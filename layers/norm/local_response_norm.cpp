#include <steadygrad/layers/norm/local_response_norm.hpp>

#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/norm/norm_kinds.hpp>
#include <steadygrad/layers/norm/norm_op.hpp>
#include <steadygrad/layers/norm/window_sum_kernel.hpp>

// y = x * s^(-beta), s = k + a * W(x^2), a = alpha / size, W the window sum, W' its transpose. What
// the composed operations amount to, with u = dy:
//   dx = u * s^(-beta) - 2 * a * beta * x * W'(u * x * s^(-beta - 1)).

namespace steady {

Tensor channel_window_sum(const Tensor& x, std::int64_t before, std::int64_t after) {
  const char* op = "channel_window_sum";
  detail::check_norm_input(op, x);
  STEADY_CHECK(ShapeError, x.rank() >= 1, "{}: needs [..., C]; got x {}", op, describe(x));
  STEADY_CHECK(Error, before >= 0 && after >= 0, "{}: before and after must be >= 0; got {} and {}",
               op, before, after);
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  const std::int64_t rows = x.shape().numel(0, x.rank() - 1);
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    window_sum<T>({.rows = rows, .channels = x.dim(-1), .before = before, .after = after},
                  x.data<T>(), y.mutable_data<T>(op));
  });
  return record(op, std::move(y), {x}, {}, [before, after](BackwardCall& call) {
    call.give(0, channel_window_sum(call.grad(), after, before));
  });
}

namespace {

void check_options(const char* op, const ResponseOptions& o) {
  STEADY_CHECK(Error, o.size >= 1, "{}: size must be >= 1; got {}", op, o.size);
  STEADY_CHECK(Error, std::isfinite(o.alpha) && o.alpha >= 0,
               "{}: alpha must be finite and >= 0; got {}", op, o.alpha);
  STEADY_CHECK(Error, std::isfinite(o.beta) && o.beta >= 0,
               "{}: beta must be finite and >= 0; got {}", op, o.beta);
  STEADY_CHECK(Error, std::isfinite(o.k) && o.k > 0, "{}: k must be finite and > 0; got {}", op,
               o.k);
}

ResponseOptions response(const LocalResponseNorm::Options& o) {
  return {.size = o.size, .alpha = o.alpha, .beta = o.beta, .k = o.k};
}

const LocalResponseNorm::Options& checked(const LocalResponseNorm::Options& o) {
  STEADY_CHECK(Error, o.features >= 1, "LocalResponseNorm: needs features >= 1; got {}",
               o.features);
  check_options("LocalResponseNorm", response(o));
  return o;
}

}  // namespace

Tensor local_response_norm(const Tensor& x, const ResponseOptions& options) {
  const char* op = "local_response_norm";
  detail::check_norm_input(op, x);
  STEADY_CHECK(ShapeError, x.rank() >= 1, "{}: needs [..., C]; got x {}", op, describe(x));
  check_options(op, options);
  const Tensor window = channel_window_sum(square(x), options.size / 2, (options.size - 1) / 2);
  const Tensor s = add(mul(window, options.alpha / static_cast<double>(options.size)), options.k);
  return mul(x, pow(s, -options.beta));
}

LocalResponseNorm::LocalResponseNorm(const Options& options) : o(checked(options)) {}

Tensor LocalResponseNorm::forward(const Tensor& x) {
  detail::check_features("LocalResponseNorm", x, o.features);
  return local_response_norm(x, response(o));
}

std::string LocalResponseNorm::describe() const {
  return fmt::format("LocalResponseNorm({}, size={}, alpha={}, beta={}, k={})", o.features, o.size,
                     o.alpha, o.beta, o.k);
}

namespace detail {

NormKind lrn_kind() {
  return {"lrn(size=5[1..], alpha=1e-4[0..], beta=0.75[0..], k=1[0..])",
          [](const NormOptions& options, std::int64_t features) {
            return std::make_unique<LocalResponseNorm>(
                LocalResponseNorm::Options{.features = features,
                                           .size = options.integer("size"),
                                           .alpha = options.number("alpha"),
                                           .beta = options.number("beta"),
                                           .k = options.number("k")});
          }};
}

}  // namespace detail
}  // namespace steady
