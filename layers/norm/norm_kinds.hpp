#pragma once

#include <steadygrad/layers/norm/norm_spec.hpp>
#include <vector>

namespace steady::detail {

/// A norm that NormSpec knows from the start.
struct NormKind {
  const char* grammar;  ///< as register_norm takes it
  NormFactory make;
};

/// All of them, in the order in which they are listed. Each is defined beside its norm.
[[nodiscard]] std::vector<NormKind> norm_kinds();

}  // namespace steady::detail
