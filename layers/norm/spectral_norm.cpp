#include <steadygrad/layers/norm/spectral_norm.hpp>

#include <algorithm>
#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/matmul.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/core/state_update.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady {
namespace {

constexpr int InitialIterations = 15;  // as PyTorch's parametrization

std::int64_t rest_of(const Shape& weight) { return weight.numel(1, weight.rank()); }

Tensor matrix_of(const Tensor& weight) {
  return reshape(weight, {weight.dim(0), rest_of(weight.shape())});
}

void check(const char* op, const Tensor& weight, const Tensor& u, const Tensor& v) {
  check_defined(op, "weight", weight);
  check_defined(op, "u", u);
  check_defined(op, "v", v);
  STEADY_CHECK(ShapeError,
               is_float(weight.dtype()) && weight.rank() >= 2 && u.dtype() == weight.dtype() &&
                   v.dtype() == weight.dtype() && u.shape() == Shape{weight.dim(0)} &&
                   v.shape() == Shape{rest_of(weight.shape())},
               "{}: needs weight [out, ...], u [out], v [rest] of one floating dtype; got weight "
               "{}, u {}, v {}",
               op, describe(weight), describe(u), describe(v));
}

/// x / max(|x|, eps)
Tensor unit(const Tensor& x, double eps) {
  return x / std::max(std::sqrt(sum(square(x)).item()), eps);
}

/// u^T W v, recorded.
Tensor sigma_of(const Tensor& weight, const Tensor& u, const Tensor& v) {
  return sum(matmul(matrix_of(weight), v) * u);
}

bool all_finite(const Tensor& x) {
  return dispatch_float("SpectralNorm", x.dtype(), [&]<FloatElement T>() {
    return std::ranges::all_of(x.data<T>(), [](T value) { return std::isfinite(value); });
  });
}

template <class Inner>
typename SpectralNorm<Inner>::Options checked(typename SpectralNorm<Inner>::Options o) {
  STEADY_CHECK(Error, o.iterations >= 1 && std::isfinite(o.eps) && o.eps > 0,
               "SpectralNorm: iterations must be at least 1 and eps positive; got {} and {}",
               o.iterations, o.eps);
  o.inner = Inner::complete(std::move(o.inner));
  return o;
}

/// Length 1 in every direction alike.
Tensor even_unit(std::int64_t n) {
  return Tensor::full({n}, 1.0 / std::sqrt(static_cast<double>(n)));
}

}  // namespace

Tensor spectral_norm(const Tensor& weight, const Tensor& u, const Tensor& v) {
  const char* op = "spectral_norm";
  check(op, weight, u, v);
  const Tensor sigma = sigma_of(weight, u.detach(), v.detach());
  STEADY_CHECK(NonFiniteError, sigma.item() != 0,
               "{}: sigma is 0: the weight is zero, or u and v are no singular vectors of it; got "
               "weight {}",
               op, describe(weight));
  return weight / sigma;
}

std::pair<Tensor, Tensor> power_iteration(const Tensor& weight, const Tensor& u, const Tensor& v,
                                          int iterations, double eps) {
  check("power_iteration", weight, u, v);
  const NoRecord constants;
  const Tensor w = matrix_of(weight.detach());
  Tensor left = u.detach(), right = v.detach();
  for (int i = 0; i < iterations; ++i) {
    right = unit(matmul(left, w), eps);
    left = unit(matmul(w, right), eps);
  }
  return {left, right};
}

template <class Inner>
SpectralNorm<Inner>::SpectralNorm(Options options)
    : o(checked<Inner>(std::move(options))),
      bias(add_parameter("bias", {o.inner.out}, Role::Bias, o.inner.bias_init, o.inner.bias)),
      weight_orig(add_parameter("weight_orig", Inner::weight_shape(o.inner), Role::Weight,
                                o.inner.weight_init)),
      weight_u(add_buffer("weight_u", even_unit(o.inner.out))),
      weight_v(add_buffer("weight_v", even_unit(rest_of(Inner::weight_shape(o.inner))))) {}

template <class Inner>
void SpectralNorm<Inner>::on_initialize(std::uint64_t seed) {
  const auto fill = [&](Tensor& x, const char* name) {
    Random random(seed, path() + "." + name);
    dispatch_float("SpectralNorm", x.dtype(), [&]<FloatElement T>() {
      for (T& value : x.mutable_data<T>("initialize")) value = static_cast<T>(random.normal());
    });
  };
  fill(weight_u, "weight_u");
  fill(weight_v, "weight_v");
  iterate(InitialIterations);
}

/// Writes the buffers, which no tape holds: what spectral_norm saves are copies.
template <class Inner>
void SpectralNorm<Inner>::iterate(int iterations) {
  const auto [u, v] = power_iteration(weight_orig, weight_u, weight_v, iterations, o.eps);
  STEADY_CHECK(NonFiniteError, all_finite(u) && all_finite(v),
               "SpectralNorm: a power iteration is not finite, and neither is weight_orig; no "
               "buffer was changed");
  weight_u.copy_from(u, "SpectralNorm");
  weight_v.copy_from(v, "SpectralNorm");
}

template <class Inner>
Tensor SpectralNorm<Inner>::weight() const {
  return spectral_norm(weight_orig, weight_u.detached_copy(), weight_v.detached_copy());
}

template <class Inner>
Tensor SpectralNorm<Inner>::forward(const Tensor& x) {
  if (mode() == Mode::Train && state_updates()) iterate(o.iterations);
  return Inner::apply(o.inner, x, weight(), bias);
}

template <class Inner>
void SpectralNorm<Inner>::measure(const Tensor& x, const MeasureSink& sink) const {
  (void)x;
  const NoRecord constants;
  sink("sigma", sigma_of(weight_orig, weight_u, weight_v).item());
}

template <class Inner>
std::string SpectralNorm<Inner>::describe() const {
  return fmt::format("SpectralNorm({}, iterations={})", Inner::describe(o.inner), o.iterations);
}

template <class Inner>
std::string SpectralNorm<Inner>::statistics() const {
  return mode() == Mode::Train ? "updating" : "frozen";
}

template class SpectralNorm<Linear>;
template class SpectralNorm<Conv2d>;

}  // namespace steady
