#include <cmath>
#include <steadygrad/core/random.hpp>

#include "tests/support/op_table.hpp"

namespace steady::testing_support {
namespace {

constexpr double KinkMargin = 0.05;

double away_from_kinks(double value, const std::vector<double>& kinks) {
  for (const double kink : kinks) {
    const double distance = value - kink;
    if (std::abs(distance) < KinkMargin) {
      value = kink + (distance < 0 ? -2 : 2) * KinkMargin + distance;
    }
  }
  return value;
}

/// The input in float64 (or int64); floating values are those of a float32, so that a float32 run
/// starts from the same numbers.
Tensor make(const OpInput& input, Random& random) {
  if (input.given) return input.given->detached_copy();
  if (input.integer) {
    Tensor t = Tensor::empty(input.shape, Dtype::I64);
    const auto low = static_cast<std::int64_t>(input.low);
    const auto count = static_cast<std::int64_t>(input.high) - low;
    for (std::int64_t& v : t.mutable_data<std::int64_t>()) v = low + random.below(count);
    return t;
  }
  Tensor t = Tensor::empty(input.shape, Dtype::F64);
  const auto out = t.mutable_data<double>();
  const double width = input.high - input.low;
  const auto order = input.distinct ? random.permutation(t.numel()) : std::vector<std::int64_t>{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double at = input.distinct
                          ? static_cast<double>(order[i]) / static_cast<double>(t.numel())
                          : random.uniform();
    out[i] = static_cast<float>(away_from_kinks(input.low + width * at, input.kinks));
  }
  return t;
}

}  // namespace

std::vector<Tensor> make_inputs(const std::vector<OpInput>& inputs, Dtype dtype) {
  Random random(7, "op table inputs");
  std::vector<Tensor> tensors;
  for (const OpInput& input : inputs) {
    const Tensor t = make(input, random);
    tensors.push_back(is_float(t.dtype()) ? t.detached_copy(dtype) : t);
    if (is_float(t.dtype()) && input.differentiable) tensors.back().set_requires_grad();
  }
  return tensors;
}

OpInput OpInput::away_from(std::vector<double> points) const {
  OpInput input = *this;
  input.kinks = std::move(points);
  return input;
}

OpInput OpInput::constant() const {
  OpInput input = *this;
  input.differentiable = false;
  return input;
}

OpInput OpInput::without_near_ties() const {
  OpInput input = *this;
  input.distinct = true;
  return input;
}

OpInput real(const Shape& shape, double low, double high) {
  return {.shape = shape, .low = low, .high = high};
}

OpInput integers(const Shape& shape, std::int64_t low, std::int64_t high) {
  return {.shape = shape,
          .low = static_cast<double>(low),
          .high = static_cast<double>(high),
          .integer = true,
          .differentiable = false};
}

OpInput values(const Tensor& tensor) {
  return {.shape = tensor.shape(), .differentiable = is_float(tensor.dtype()), .given = tensor};
}

}  // namespace steady::testing_support
