#pragma once

#include <cstdint>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/named_choice.hpp>
#include <string>
#include <string_view>

namespace steady {

/// The learned factor of a residual branch, as text:
///   none
///   rezero(init=0)          one number per branch        [ReZero, Bachlechner et al. 2021]
///   layerscale(init=1e-4)   one number per feature       [LayerScale, Touvron et al. 2021]
/// `init` is its first value.
class Gate {
 public:
  /// none
  Gate() : Gate(parse("none")) {}
  /// Throws Error naming the offending token and the choices.
  [[nodiscard]] static Gate parse(std::string_view text);
  [[nodiscard]] const std::string& name() const { return choice_.name(); }
  /// Its first value; 1 for none.
  [[nodiscard]] double init() const;
  friend bool operator==(const Gate&, const Gate&) = default;
  friend std::string to_string(const Gate& gate) { return gate.choice_.text(); }

 private:
  explicit Gate(detail::NamedChoice choice) : choice_(std::move(choice)) {}
  detail::NamedChoice choice_;
};

/// y = gamma * x. x, y: [..., features]; gamma: [features] for LayerScale, [1] for ReZero
/// (features = 1), Role::NormScale: weight decay would close the gate.
class Scale : public Layer {
 public:
  struct Options {
    std::int64_t features = 1;  ///< 1: one factor for all
    double init = 1.0;
  };
  /// Throws Error for features below 1 and for an init that is not finite.
  explicit Scale(Options options);
  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string describe() const override;

  const Options o;
  Tensor& gamma;
};

/// Adds the layer of `gate` over `features` features to `host`; null for none.
Layer* add_gate(Module& host, const std::string& name, const Gate& gate, std::int64_t features);

}  // namespace steady
