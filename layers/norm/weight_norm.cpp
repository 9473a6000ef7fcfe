#include <steadygrad/layers/norm/weight_norm.hpp>

#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/tape.hpp>
#include <vector>

namespace steady {
namespace {

/// The shape of g for v.
Shape length_shape(const char* op, const Shape& v, std::optional<int> dim) {
  if (!dim) return {};
  STEADY_CHECK(ShapeError, *dim >= 0 && *dim < v.rank(),
               "{}: dim must be an axis of the weight, from 0; got dim {}, weight {}", op, *dim,
               to_string(v));
  Shape result;
  for (int axis = 0; axis < v.rank(); ++axis) {
    result = result.appended(axis == *dim ? v[axis] : std::int64_t{1});
  }
  return result;
}

/// |v| in the shape of g.
Tensor lengths(const Tensor& v, std::optional<int> dim) {
  if (!dim) return sqrt(sum(square(v)));
  std::vector<int> others;
  for (int axis = 0; axis < v.rank(); ++axis) {
    if (axis != *dim) others.push_back(axis);
  }
  const Tensor squares = square(v);
  return sqrt(others.empty() ? squares : sum(squares, Axes(std::span<const int>(others)), true));
}

void check_lengths(const char* op, const Tensor& norm) {
  const Tensor wide = norm.detached_copy(Dtype::F64);
  std::int64_t slice = 0;
  for (const double length : wide.data<double>()) {
    STEADY_CHECK(NonFiniteError, std::isfinite(length) && length > 0,
                 "{}: slice {} of v has norm {}: it has no direction; to start a unit at 0, set g "
                 "to 0 instead of v",
                 op, slice, length);
    ++slice;
  }
}

template <class Inner>
typename WeightNorm<Inner>::Options complete(typename WeightNorm<Inner>::Options o) {
  o.inner = Inner::complete(std::move(o.inner));
  return o;
}

}  // namespace

Tensor weight_norm(const Tensor& v, const Tensor& g, std::optional<int> dim) {
  const char* op = "weight_norm";
  check_defined(op, "v", v);
  check_defined(op, "g", g);
  const Shape expected = length_shape(op, v.shape(), dim);
  STEADY_CHECK(ShapeError, is_float(v.dtype()) && g.dtype() == v.dtype() && g.shape() == expected,
               "{}: g must be {} {} for v {}; got g {}", op, to_string(v.dtype()),
               to_string(expected), describe(v), describe(g));
  const Tensor norm = lengths(v, dim);
  check_lengths(op, norm);
  return v * (g / norm);
}

template <class Inner>
WeightNorm<Inner>::WeightNorm(Options options)
    : o(complete<Inner>(std::move(options))),
      bias(add_parameter("bias", {o.inner.out}, Role::Bias, o.inner.bias_init, o.inner.bias)),
      weight_v(add_parameter("weight_v", Inner::weight_shape(o.inner), Role::Weight,
                             o.inner.weight_init)),
      weight_g(add_parameter("weight_g",
                             length_shape("WeightNorm", Inner::weight_shape(o.inner), o.dim),
                             Role::NormScale, [this](Tensor& value, Random&) {
                               const NoRecord constant;  // weight_v has its values: it stands first
                               value.copy_from(lengths(weight_v, o.dim), "initialize");
                             })) {}

template <class Inner>
Tensor WeightNorm<Inner>::forward(const Tensor& x) {
  return Inner::apply(o.inner, x, weight(), bias);
}

template <class Inner>
std::string WeightNorm<Inner>::describe() const {
  const std::string text = Inner::describe(o.inner);
  return o.dim ? fmt::format("WeightNorm({}, dim={})", text, *o.dim)
               : fmt::format("WeightNorm({}, whole)", text);
}

template class WeightNorm<Linear>;
template class WeightNorm<Conv2d>;

}  // namespace steady
