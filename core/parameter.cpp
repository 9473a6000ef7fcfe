#include <steadygrad/core/parameter.hpp>

#include <algorithm>

namespace steady {

std::string_view to_string(Role role) {
  switch (role) {
    case Role::Weight:
      return "weight";
    case Role::Bias:
      return "bias";
    case Role::NormScale:
      return "norm scale";
    case Role::NormShift:
      return "norm shift";
    case Role::Embedding:
      return "embedding";
  }
  return "?";
}

Tensor find(const State& state, std::string_view name) {
  const auto at = std::ranges::find(state, name, &NamedTensor::name);
  return at == state.end() ? Tensor() : at->value;
}

}  // namespace steady
