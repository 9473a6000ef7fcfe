#include <steadygrad/core/gradcheck.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/core/state_update.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady {
namespace {

/// Standard normal numbers in the shape of `like`.
Tensor random_like(const Tensor& like, Random& random) {
  Tensor t = Tensor::empty(like.shape(), Dtype::F64);
  for (double& value : t.mutable_data<double>("random_like")) value = random.normal();
  return t;
}

double inner_product(const Tensor& a, const Tensor& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.data<double>().size(); ++i) {
    sum += a.data<double>()[i] * b.data<double>()[i];
  }
  return sum;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return std::ranges::equal(
      a.data<double>(), b.data<double>(), {},
      [](double v) { return std::bit_cast<std::uint64_t>(v); },
      [](double v) { return std::bit_cast<std::uint64_t>(v); });
}

/// Copies of the inputs that this check alone owns.
std::vector<Tensor> own_inputs(const char* name, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> copies;
  bool any = false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = inputs[i];
    if (!input.defined()) {
      copies.emplace_back();
      continue;
    }
    STEADY_CHECK(ShapeError, input.dtype() != Dtype::F32,
                 "{}: needs float64 inputs; got input {} {}", name, i, describe(input));
    copies.push_back(input.detached_copy());
    if (input.requires_grad()) copies.back().set_requires_grad();
    any |= input.requires_grad();
  }
  STEADY_CHECK(Error, any, "{}: no input requires a gradient", name);
  return copies;
}

/// One scalar function of several tensors and its gradient by each of them, checked element by
/// element.
struct Problem {
  std::vector<Tensor> variables;                    // moved in place by the differences
  std::function<double()> value{};                  // at the present variables
  std::function<std::vector<Tensor>()> gradient{};  // one per variable
};

double five_point_difference(const Problem& problem, double& x, double relative_step) {
  const double at = x;
  const double h = relative_step * std::max(1.0, std::abs(at));
  const auto shifted = [&](double by) {
    x = at + by;
    return problem.value();
  };
  const std::array<double, 4> f{shifted(h), shifted(-h), shifted(2 * h), shifted(-2 * h)};
  x = at;
  return (8.0 * (f[0] - f[1]) - (f[2] - f[3])) / (12.0 * h);
}

/// Compares one variable's analytic gradient with differences.
void check_variable(const Problem& problem, std::size_t index, const Tensor& analytic,
                    const GradcheckOptions& options, GradcheckResult& result) {
  Tensor variable = problem.variables[index];
  std::vector<double> numeric;
  for (std::size_t i = 0; i < static_cast<std::size_t>(variable.numel()); ++i) {
    double& x = variable.mutable_data<double>("gradcheck")[i];
    numeric.push_back(five_point_difference(problem, x, options.step));
  }
  double scale = 1.0;
  for (const double value : numeric) scale = std::max(scale, std::abs(value));
  for (std::size_t i = 0; i < numeric.size(); ++i) {
    const double got = analytic.data<double>()[i];
    const double error = std::abs(got - numeric[i]) / scale;
    if (error <= result.error) continue;  // false for NaN
    result.error = error;
    if (error <= options.tolerance) continue;
    result.ok = false;
    result.message = fmt::format(
        "input {} element {} of {}: analytic {:.17g}, numeric {:.17g}, error {:.3g} (allowed "
        "{:.3g})",
        index, i, describe(variable), got, numeric[i], error, options.tolerance);
    if (std::isnan(error)) return;
  }
}

GradcheckResult check(const Problem& problem, const GradcheckOptions& options) {
  GradcheckResult result{.ok = true};
  std::vector<Tensor> before;
  for (const Tensor& variable : problem.variables) before.push_back(variable.detached_copy());
  const std::vector<Tensor> analytic = problem.gradient();
  const std::vector<Tensor> again = problem.gradient();
  for (std::size_t i = 0; i < analytic.size(); ++i) {
    if (!same_bits(problem.variables[i], before[i])) {
      result = {.ok = false, .message = fmt::format("input {} was changed by the function", i)};
      return result;
    }
    if (!same_bits(analytic[i], again[i])) {
      result = {.ok = false, .message = fmt::format("input {}: two backwards differ in bits", i)};
      return result;
    }
  }
  for (std::size_t i = 0; i < analytic.size(); ++i) {
    check_variable(problem, i, analytic[i], options, result);
    if (std::isnan(result.error)) break;
  }
  return result;
}

/// The gradient by `variable`, zero where backward did not reach it.
Tensor gradient_or_zero(const Gradients& gradients, const Tensor& variable) {
  const Tensor* found = gradients.find(variable);
  return found != nullptr ? *found : Tensor::zeros(variable.shape(), Dtype::F64);
}

std::vector<Tensor> variables_of(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> variables;
  for (const Tensor& input : inputs) {
    if (input.defined() && input.requires_grad()) variables.push_back(input);
  }
  return variables;
}

}  // namespace

GradcheckResult gradcheck(const TensorFunction& f, std::vector<Tensor> inputs,
                          const GradcheckOptions& options) {
  const NoStateUpdate differences;
  inputs = own_inputs("gradcheck", inputs);
  Random random(options.seed, "gradcheck cotangent");
  const auto value = [&] {
    const NoRecord differences_only;
    return f(inputs);
  };
  const Tensor cotangent = random_like(value(), random);
  Problem problem{.variables = variables_of(inputs)};
  problem.value = [&] { return inner_product(value(), cotangent); };
  problem.gradient = [&] {
    Tape tape;
    const Tensor y = f(inputs);
    const Gradients gradients = tape.backward(y, {.cotangent = cotangent});
    std::vector<Tensor> result;
    for (const Tensor& v : problem.variables) result.push_back(gradient_or_zero(gradients, v));
    return result;
  };
  return check(problem, options);
}

GradcheckResult gradcheck_second(const TensorFunction& f, std::vector<Tensor> inputs,
                                 const GradcheckOptions& options) {
  const NoStateUpdate differences;
  inputs = own_inputs("gradcheck_second", inputs);
  Random random(options.seed, "gradcheck_second cotangent");
  const std::vector<Tensor> variables = variables_of(inputs);
  Tensor cotangent = random_like(f(inputs), random);
  cotangent.set_requires_grad();
  std::vector<Tensor> projections;
  for (const Tensor& v : variables) projections.push_back(random_like(v, random));

  Problem problem{.variables = variables};
  problem.variables.push_back(cotangent);
  problem.value = [&] {
    Tape tape;
    const Tensor y = f(inputs);
    const Gradients first = tape.backward(y, {.cotangent = cotangent});
    double sum = 0.0;
    for (std::size_t i = 0; i < variables.size(); ++i) {
      sum += inner_product(gradient_or_zero(first, variables[i]), projections[i]);
    }
    return sum;
  };
  problem.gradient = [&] {
    Tape tape;
    const Tensor y = f(inputs);
    const Gradients first = tape.backward(y, {.record = true, .cotangent = cotangent});
    std::vector<Tensor> reached;
    std::vector<Tensor> cotangents;
    for (std::size_t i = 0; i < variables.size(); ++i) {
      if (!first.contains(variables[i])) continue;
      reached.push_back(first[variables[i]]);
      cotangents.push_back(projections[i]);
    }
    const Gradients second = tape.backward(reached, cotangents);
    std::vector<Tensor> result;
    for (const Tensor& v : problem.variables) result.push_back(gradient_or_zero(second, v));
    return result;
  };
  return check(problem, options);
}

}  // namespace steady
