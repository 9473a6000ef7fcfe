#pragma once

#include <steadygrad/layers/layer.hpp>
#include <string>

namespace steady {

/// Layers one after the other, in the order in which they were added:
///
///   Sequential net;
///   net.add<Linear>({.in = 784, .out = 100});            // "0"
///   net.add<ReluLayer>("act", {});
///
/// A child that is not a Layer makes forward throw Error.
class Sequential : public Layer {
 public:
  struct Options {};
  explicit Sequential(Options options = {}) : o(options) {}

  using Module::add;
  /// Adds a child named by its index.
  template <class M>
  M& add(typename M::Options options) {
    return add<M>(std::to_string(children().size()), std::move(options));
  }
  using Module::add_norm;
  Layer& add_norm(const NormSpec& spec, std::int64_t features) {
    return add_norm(std::to_string(children().size()), spec, features);
  }

  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string describe() const override { return "Sequential"; }

  const Options o;
};

}  // namespace steady
