#pragma once

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/layers/layer.hpp>
#include <string>

namespace steady {

/// An elementwise function without options as a layer. `Function` has a static `apply` and a
/// `name`.
template <class Function>
class ElementwiseLayer : public Layer {
 public:
  struct Options {};
  explicit ElementwiseLayer(Options options = {}) : o(options) {}
  Tensor forward(const Tensor& x) override { return Function::apply(x); }
  [[nodiscard]] std::string describe() const override { return Function::name; }
  const Options o;
};

namespace detail {

struct ReluFunction {
  static constexpr const char* name = "Relu";
  static Tensor apply(const Tensor& x) { return relu(x); }
};
struct GeluFunction {
  static constexpr const char* name = "Gelu";
  static Tensor apply(const Tensor& x) { return gelu(x, Gelu::Erf); }
};
struct GeluTanhFunction {
  static constexpr const char* name = "GeluTanh";
  static Tensor apply(const Tensor& x) { return gelu(x, Gelu::Tanh); }
};
struct SiluFunction {
  static constexpr const char* name = "Silu";
  static Tensor apply(const Tensor& x) { return silu(x); }
};
struct TanhFunction {
  static constexpr const char* name = "Tanh";
  static Tensor apply(const Tensor& x) { return tanh(x); }
};
struct SigmoidFunction {
  static constexpr const char* name = "Sigmoid";
  static Tensor apply(const Tensor& x) { return sigmoid(x); }
};

}  // namespace detail

using ReluLayer = ElementwiseLayer<detail::ReluFunction>;          ///< max(x, 0)
using GeluLayer = ElementwiseLayer<detail::GeluFunction>;          ///< x Phi(x)
using GeluTanhLayer = ElementwiseLayer<detail::GeluTanhFunction>;  ///< its tanh approximation
using SiluLayer = ElementwiseLayer<detail::SiluFunction>;          ///< x sigmoid(x)
using TanhLayer = ElementwiseLayer<detail::TanhFunction>;
using SigmoidLayer = ElementwiseLayer<detail::SigmoidFunction>;

/// x for x > 0, else slope * x.
class LeakyReluLayer : public Layer {
 public:
  struct Options {
    double slope = 0.01;
  };
  explicit LeakyReluLayer(Options options) : o(options) {}
  Tensor forward(const Tensor& x) override { return leaky_relu(x, o.slope); }
  [[nodiscard]] std::string describe() const override {
    return fmt::format("LeakyRelu(slope={})", o.slope);
  }
  const Options o;
};

/// log(1 + exp(beta x)) / beta; x itself where beta x > threshold. Throws Error unless beta > 0.
class SoftplusLayer : public Layer {
 public:
  struct Options {
    double beta = 1.0;
    double threshold = 20.0;
  };
  explicit SoftplusLayer(Options options) : o(options) {
    STEADY_CHECK(Error, o.beta > 0.0, "Softplus: beta must be positive; got {}", o.beta);
  }
  Tensor forward(const Tensor& x) override { return softplus(x, o.beta, o.threshold); }
  [[nodiscard]] std::string describe() const override {
    return fmt::format("Softplus(beta={}, threshold={})", o.beta, o.threshold);
  }
  const Options o;
};

/// The axes from `first_axis` on as one; with the default every sample becomes a row.
class Flatten : public Layer {
 public:
  struct Options {
    int first_axis = 1;
  };
  explicit Flatten(Options options) : o(options) {}
  Tensor forward(const Tensor& x) override { return flatten(x, o.first_axis); }
  [[nodiscard]] std::string describe() const override {
    return fmt::format("Flatten(first_axis={})", o.first_axis);
  }
  const Options o;
};

}  // namespace steady
