#include <steadygrad/layers/norm/filter_response_norm.hpp>

#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/layers/norm/norm_kinds.hpp>
#include <steadygrad/layers/norm/norm_measure.hpp>
#include <steadygrad/layers/norm/norm_op.hpp>

// Composed of differentiable operations. What they amount to, per sample and channel with m(.) the
// mean over the positions, r = (nu2 + |eps|)^(-1/2), xhat = x * r and w = weight * dy (0 where the
// threshold is above):
//   dx = r * (w - xhat * m(w * xhat)),   d|eps| = -r^2 / 2 * sum w * xhat.

namespace steady {
namespace {

/// x * r as [N, P, C]; `eps` is [1] or undefined, then `constant` stands for it.
Tensor normalized(const Tensor& x, const Tensor& eps, double constant) {
  const Shape slabs{x.dim(0), x.shape().numel(1, x.rank() - 1), x.dim(-1)};
  const Tensor flat = reshape(x, slabs);
  if (x.numel() == 0) return flat;
  const Tensor nu2 = mean(square(flat), 1, true);
  const Tensor r = rsqrt(eps.defined() ? add(nu2, abs(eps)) : add(nu2, constant));
  return mul(flat, r);
}

Tensor apply(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& tau,
             const Tensor& eps, double constant) {
  const char* op = "filter_response_norm";
  detail::check_norm_input(op, x);
  STEADY_CHECK(ShapeError, x.rank() >= 2 && x.dim(-1) >= 1,
               "{}: needs [N, ..., C] of two axes or more, C >= 1; got x {}", op, describe(x));
  const Shape channels{x.dim(-1)};
  detail::check_norm_parameter(op, "weight", weight, channels, x);
  detail::check_norm_parameter(op, "bias", bias, channels, x);
  detail::check_norm_parameter(op, "tau", tau, channels, x);
  detail::check_norm_parameter(op, "eps", eps, {1}, x);
  Tensor y = normalized(x, eps, constant);
  if (weight.defined()) y = mul(y, weight);
  if (bias.defined()) y = add(y, bias);
  if (tau.defined()) y = maximum(y, tau);
  return reshape(y, x.shape());
}

}  // namespace

Tensor filter_response_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                            const Tensor& tau, const Tensor& eps) {
  check_defined("filter_response_norm", "eps", eps);
  return apply(x, weight, bias, tau, eps, 0);
}

Tensor filter_response_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                            const Tensor& tau, double eps) {
  detail::check_eps("filter_response_norm", eps);
  return apply(x, weight, bias, tau, {}, eps);
}

namespace {

const FilterResponseNorm::Options& checked(const FilterResponseNorm::Options& o) {
  STEADY_CHECK(Error, o.features >= 1, "FilterResponseNorm: needs features >= 1; got {}",
               o.features);
  detail::check_eps("FilterResponseNorm", o.eps);
  return o;
}

}  // namespace

FilterResponseNorm::FilterResponseNorm(const Options& options)
    : o(checked(options)),
      weight(add_parameter("weight", Tensor::ones({o.features}), Role::NormScale)),
      bias(add_parameter("bias", Tensor::zeros({o.features}), Role::NormShift)),
      tau(add_parameter("tau", Tensor::zeros({o.features}), Role::NormShift, o.tlu)),
      eps(add_parameter("eps", Tensor::full({1}, o.eps), Role::NormShift, o.learn_eps)) {}

Tensor FilterResponseNorm::forward(const Tensor& x) {
  detail::check_features("FilterResponseNorm", x, o.features);
  return apply(x, weight, bias, tau, eps, o.eps);
}

void FilterResponseNorm::measure(const Tensor& x, const MeasureSink& sink) const {
  const Tensor constant = eps.defined() ? eps.detach() : Tensor();
  detail::measure_normalized(sink, normalized(x.detach(), constant, o.eps));
}

std::string FilterResponseNorm::describe() const {
  return fmt::format("FilterResponseNorm({}, eps={}{}{})", o.features, o.eps,
                     o.learn_eps ? " learned" : "", o.tlu ? "" : ", tlu=false");
}

namespace detail {

NormKind frn_kind() {
  return {"frn(eps=1e-6[0..], learn_eps=false, tlu=true)",
          [](const NormOptions& options, std::int64_t features) {
            return std::make_unique<FilterResponseNorm>(
                FilterResponseNorm::Options{.features = features,
                                            .eps = options.number("eps"),
                                            .learn_eps = options.flag("learn_eps"),
                                            .tlu = options.flag("tlu")});
          }};
}

}  // namespace detail
}  // namespace steady
