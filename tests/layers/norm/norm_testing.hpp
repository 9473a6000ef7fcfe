#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <steadygrad/core/random.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/core/tensor.hpp>
#include <string_view>
#include <vector>

// Shared by the tests of the norms.
namespace steady::norm_testing {

inline Tensor leaf(const Shape& shape, std::initializer_list<double> values,
                   Dtype dtype = Dtype::F64) {
  return Tensor::of(shape, values, dtype).set_requires_grad();
}

/// f(0), f(1), ... as a float64 tensor.
inline Tensor generate(const Shape& shape, const std::function<double(double)>& f) {
  Tensor t = Tensor::empty(shape, Dtype::F64);
  double k = 0;
  for (double& v : t.mutable_data<double>()) v = f(k++);
  return t;
}

/// Normal numbers, exactly representable in float32.
inline Tensor noise(const Shape& shape, std::string_view name, double mean = 0, double spread = 1) {
  Random random(7, name);
  return generate(shape, [&](double) { return double(float(mean + spread * random.normal())); });
}

inline std::vector<double> values(const Tensor& t) {
  const Tensor wide = t.dtype() == Dtype::F64 ? t : t.detached_copy(Dtype::F64);
  return {wide.data<double>().begin(), wide.data<double>().end()};
}

/// |got - want| <= tolerance * max(1, largest |want|) for every element.
inline void expect_values(const Tensor& got, const std::vector<double>& want,
                          double tolerance = 1e-10) {
  const std::vector<double> v = values(got);
  ASSERT_EQ(v.size(), want.size());
  double scale = 1;
  for (const double w : want) scale = std::max(scale, std::abs(w));
  for (std::size_t i = 0; i < v.size(); ++i) {
    EXPECT_NEAR(v[i], want[i], tolerance * scale) << "element " << i;
  }
}

/// Bitwise equality, NaN included.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  return dispatch_all(a.dtype(), [&]<Element T>() {
    const auto x = std::as_bytes(a.data<T>());
    const auto y = std::as_bytes(b.data<T>());
    return std::ranges::equal(x, y);
  });
}

/// Gradients of sum(cotangent * y) on a tape of their own.
inline Gradients gradients(const std::function<Tensor()>& f, const Tensor& cotangent) {
  Tape tape;
  const Tensor y = f();
  return tape.backward(y, {.cotangent = cotangent});
}

}  // namespace steady::norm_testing
