#include <steadygrad/layers/norm/ada_norm.hpp>

#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/norm/ada_norm_kernel.hpp>
#include <steadygrad/layers/norm/layer_norm.hpp>
#include <steadygrad/layers/norm/norm_kinds.hpp>
#include <steadygrad/layers/norm/norm_measure.hpp>
#include <steadygrad/layers/norm/norm_op.hpp>

namespace steady {
namespace {

struct Factor {
  double c, k;
  bool detach;
  /// dz/dy = c * (1 - slope() * y).
  [[nodiscard]] double slope() const { return detach ? k : 2 * k; }
};

/// dy from dz. With d(dy) given: d(dz) by the same map, and dy enters by -c * slope * dz.
Tensor backward(const Factor& f, const Tensor& dz, const Tensor& y) {
  const char* op = "ada_norm_backward";
  Tensor dy = Tensor::empty(y.shape(), y.dtype());
  dispatch_float(op, y.dtype(), [&]<FloatElement T>() {
    ada_scale_backward<T>(static_cast<T>(f.c), static_cast<T>(f.slope()), y.data<T>(), dz.data<T>(),
                          dy.mutable_data<T>(op));
  });
  // As a constant the factor does not pass anything on to y.
  return record(op, dy, {dz, f.detach ? Tensor() : y}, {dz, y}, [f](BackwardCall& call) {
    call.give(0, [&] { return backward(f, call.grad(), call.saved(1)); });
    call.give(1, [&] { return call.grad() * call.saved(0) * (-f.c * f.slope()); });
  });
}

Tensor scaled(const Factor& f, const Tensor& y) {
  const char* op = "ada_norm";
  Tensor z = Tensor::empty(y.shape(), y.dtype());
  dispatch_float(op, y.dtype(), [&]<FloatElement T>() {
    ada_scale<T>(static_cast<T>(f.c), static_cast<T>(f.k), y.data<T>(), z.mutable_data<T>(op));
  });
  return record(op, z, {y}, {y}, [f](BackwardCall& call) {
    call.give(0, [&] { return backward(f, call.grad(), call.saved(0)); });
  });
}

void check(const char* op, const AdaNormOptions& o) {
  detail::check_eps(op, o.eps);
  STEADY_CHECK(Error, std::isfinite(o.c) && o.c != 0 && std::isfinite(o.k) && o.k >= 0,
               "{}: c must be finite and not 0, k finite and >= 0; got {} and {}", op, o.c, o.k);
}

const AdaNorm::Options& checked(const AdaNorm::Options& o) {
  detail::check_normalized_shape("AdaNorm", o.normalized_shape);
  check("AdaNorm", o.factor);
  return o;
}

}  // namespace

Tensor ada_norm(const Tensor& x, const Shape& normalized_shape, const AdaNormOptions& options) {
  check("ada_norm", options);
  return scaled({options.c, options.k, options.detach},
                layer_norm(x, normalized_shape, {}, {}, options.eps));
}

AdaNorm::AdaNorm(const Options& options) : o(checked(options)) {}

Tensor AdaNorm::forward(const Tensor& x) { return ada_norm(x, o.normalized_shape, o.factor); }

void AdaNorm::measure(const Tensor& x, const MeasureSink& sink) const {
  const NoRecord none;
  detail::measure_normalized(sink, ada_norm(x, o.normalized_shape, o.factor));
}

std::string AdaNorm::describe() const {
  return fmt::format("AdaNorm({}, c={}, k={}, eps={}{})", to_string(o.normalized_shape), o.factor.c,
                     o.factor.k, o.factor.eps, o.factor.detach ? "" : ", detach=false");
}

namespace detail {

NormKind ada_kind() {
  return {"adanorm(c=1, k=0.1[0..], eps=1e-5[0..], detach=true)",
          [](const NormOptions& options, std::int64_t features) {
            return std::make_unique<AdaNorm>(
                AdaNorm::Options{.normalized_shape = {features},
                                 .factor = {.c = options.number("c"),
                                            .k = options.number("k"),
                                            .eps = options.number("eps"),
                                            .detach = options.flag("detach")}});
          }};
}

}  // namespace detail
}  // namespace steady
