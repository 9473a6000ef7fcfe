#include <algorithm>
#include <cmath>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/tape.hpp>

#include "tests/support/golden.hpp"

namespace steady::testing_support {
namespace {

double largest(const Tensor& t) {
  double result = 0.0;
  for (const double v : t.data<double>()) {
    if (std::isfinite(v)) result = std::max(result, std::abs(v));
  }
  return result;
}

/// Whether every element differs by at most `allowed`.
testing::AssertionResult within(const Tensor& actual, const Tensor& expected, double allowed) {
  const Tensor a = actual.detached_copy(Dtype::F64);
  const Tensor e = expected.detached_copy(Dtype::F64);
  for (std::size_t i = 0; i < e.data<double>().size(); ++i) {
    const double got = a.data<double>()[i];
    const double want = e.data<double>()[i];
    const bool equal = got == want || (std::isnan(got) && std::isnan(want));
    if (equal || (std::isfinite(want) && std::abs(got - want) <= allowed)) continue;
    return testing::AssertionFailure()
           << fmt::format("element {} of {}: got {:.17g}, expected {:.17g}, allowed {:.3g}", i,
                          describe(actual), got, want, allowed);
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult comparable(const Tensor& actual, const Tensor& expected) {
  if (!actual.defined() || !expected.defined() || actual.shape() != expected.shape() ||
      is_float(actual.dtype()) != is_float(expected.dtype())) {
    return testing::AssertionFailure()
           << "got " << describe(actual) << ", expected " << describe(expected);
  }
  return testing::AssertionSuccess();
}

/// Spatial axes to the other side of the channel: x as [outer, rows, columns] transposed.
Tensor exchange(const Tensor& x, const Shape& to, std::int64_t rows, std::int64_t columns) {
  Tensor y = Tensor::empty(to, x.dtype());
  dispatch_all(x.dtype(), [&]<Element T>() {
    const auto in = x.data<T>();
    const auto out = y.mutable_data<T>();
    const std::int64_t block = std::max<std::int64_t>(rows * columns, 1);
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const std::int64_t r = i % block / columns;
      const std::int64_t c = i % columns;
      out[static_cast<std::size_t>(i / block * block + c * rows + r)] =
          in[static_cast<std::size_t>(i)];
    }
  });
  return y;
}

void expect_golden_in(Dtype dtype, const GoldenCase& golden,
                      const std::function<Tensor(GoldenInputs&)>& f, double tolerance) {
  SCOPED_TRACE(golden.path() + " in " + std::string(to_string(dtype)));
  GoldenInputs inputs;
  for (const char* part : {"in", "param"}) {
    for (const std::string& name : golden.datasets(part)) {
      Tensor t = golden.tensor(std::string(part) + "/" + name);
      if (is_float(t.dtype())) t = t.detached_copy(dtype);
      if (golden.has("grad/" + name)) t.set_requires_grad();
      inputs[name] = t;
    }
  }
  const std::vector<std::string> outputs = golden.datasets("grad_out");
  ASSERT_EQ(outputs.size(), 1U);
  const GoldenInputs leaves = inputs;
  Tape tape;
  const Tensor y = f(inputs);
  expect_close(y, golden, "out/" + outputs[0], tolerance);
  const Tensor cotangent = golden.tensor("grad_out/" + outputs[0]).detached_copy(dtype);
  const Gradients gradients = tape.backward(y, {.cotangent = cotangent});
  for (const std::string& name : golden.datasets("grad")) {
    const Tensor* gradient = gradients.find(leaves.at(name));
    EXPECT_NE(gradient, nullptr) << "no gradient of " << name;
    if (gradient != nullptr) expect_close(*gradient, golden, "grad/" + name, tolerance);
  }
}

}  // namespace

testing::AssertionResult close(const Tensor& actual, const Tensor& expected, double tolerance) {
  if (auto fit = comparable(actual, expected); !fit) return fit;
  const double scale = std::max(1.0, largest(expected.detached_copy(Dtype::F64)));
  return within(actual, expected, is_float(expected.dtype()) ? tolerance * scale : 0.0);
}

testing::AssertionResult close(const Tensor& actual, const GoldenCase& golden,
                               const std::string& relative, double tolerance) {
  const Tensor expected = golden.tensor(relative);
  if (auto fit = comparable(actual, expected); !fit) return fit << " of " << relative;
  if (actual.dtype() != Dtype::F32) return close(actual, expected, tolerance) << " of " << relative;
  const double scale = std::max(1.0, largest(expected));
  return within(actual, expected, 10 * golden.float32_error(relative) + 4e-6 * scale)
         << " of " << relative;
}

void expect_close(const Tensor& actual, const Tensor& expected, double tolerance) {
  EXPECT_TRUE(close(actual, expected, tolerance));
}

void expect_close(const Tensor& actual, const GoldenCase& golden, const std::string& relative,
                  double tolerance) {
  EXPECT_TRUE(close(actual, golden, relative, tolerance)) << golden.path();
}

void expect_golden(const GoldenCase& golden, const std::function<Tensor(GoldenInputs& in)>& f,
                   double tolerance) {
  for (const Dtype dtype : {Dtype::F64, Dtype::F32}) expect_golden_in(dtype, golden, f, tolerance);
}

Tensor nchw_to_nhwc(const Tensor& x) {
  const Shape& s = x.shape();
  const Shape to = s.without(1).appended(s[1]);
  return exchange(x, to, s[1], s.numel(2, s.rank()));
}

Tensor nhwc_to_nchw(const Tensor& x) {
  const Shape& s = x.shape();
  const int last = s.rank() - 1;
  Shape to = Shape{s[0], s[last]};
  for (int axis = 1; axis < last; ++axis) to = to.appended(s[axis]);
  return exchange(x, to, s.numel(1, last), s[last]);
}

}  // namespace steady::testing_support
