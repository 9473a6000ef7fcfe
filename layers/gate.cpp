#include <steadygrad/layers/gate.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>

namespace steady {

Gate Gate::parse(std::string_view text) {
  static const std::array<std::string, 3> grammars{"none", "rezero(init=0[..])",
                                                   "layerscale(init=1e-4[..])"};
  return Gate(detail::NamedChoice::parse("gate", text, grammars));
}

double Gate::init() const { return name() == "none" ? 1.0 : choice_.number("init"); }

Scale::Scale(Options options)
    : o(options),
      gamma(add_parameter("gamma", Tensor::full({std::max<std::int64_t>(o.features, 1)}, o.init),
                          Role::NormScale)) {
  STEADY_CHECK(Error, o.features >= 1 && std::isfinite(o.init),
               "Scale: features must be at least 1 and init finite; got {} and {}", o.features,
               o.init);
}

Tensor Scale::forward(const Tensor& x) {
  STEADY_CHECK(ShapeError, x.rank() >= 1 && (o.features == 1 || x.dim(-1) == o.features),
               "Scale: needs x [..., {}]; got x {}", o.features, steady::describe(x));
  return x * gamma;
}

std::string Scale::describe() const {
  return o.features == 1 ? "Scale" : fmt::format("Scale({})", o.features);
}

Layer* add_gate(Module& host, const std::string& name, const Gate& gate, std::int64_t features) {
  if (gate == Gate()) return nullptr;
  return &host.add<Scale>(
      name, {.features = gate.name() == "rezero" ? 1 : features, .init = gate.init()});
}

}  // namespace steady
