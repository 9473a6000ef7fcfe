#pragma once

#include <cstdint>
#include <initializer_list>
#include <steadygrad/core/tensor.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace steady {

/// What a parameter is for. Set by the layer that owns it; optimizers choose by it, never by name.
enum class Role : std::uint8_t { Weight, Bias, NormScale, NormShift, Embedding };

/// "weight", "bias", "norm scale", "norm shift", "embedding".
[[nodiscard]] std::string_view to_string(Role role);

/// A set of roles.
class RoleSet {
 public:
  constexpr RoleSet() = default;
  constexpr RoleSet(std::initializer_list<Role> roles) {
    for (const Role role : roles) bits_ |= 1U << static_cast<unsigned>(role);
  }
  [[nodiscard]] static constexpr RoleSet all() {
    return {Role::Weight, Role::Bias, Role::NormScale, Role::NormShift, Role::Embedding};
  }
  [[nodiscard]] constexpr bool contains(Role role) const {
    return (bits_ >> static_cast<unsigned>(role) & 1U) != 0;
  }

 private:
  unsigned bits_ = 0;
};

/// A learned tensor under its dotted path. The handle shares the model's memory.
struct Parameter {
  std::string name;
  Tensor value;
  Role role = Role::Weight;
};

/// A tensor under its dotted path: a parameter or a buffer.
struct NamedTensor {
  std::string name;
  Tensor value;
};

/// Parameters and buffers of a model, in the order of registration; the handles share its memory.
using State = std::vector<NamedTensor>;

/// The tensor of that name; undefined when there is none.
[[nodiscard]] Tensor find(const State& state, std::string_view name);

}  // namespace steady
