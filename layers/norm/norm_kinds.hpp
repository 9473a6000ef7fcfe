#pragma once

#include <optional>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <vector>

namespace steady::detail {

/// A norm that NormSpec knows from the start.
struct NormKind {
  const char* grammar;  ///< as register_norm takes it
  NormFactory make;
};

/// The option momentum=0.1[0..1]|cumulative: the weight of the new batch, or nullopt for the
/// average of all batches.
[[nodiscard]] std::optional<double> momentum_of(const NormOptions& options);

/// All of them, in the order in which they are listed. Each is defined beside its norm.
[[nodiscard]] std::vector<NormKind> norm_kinds();

}  // namespace steady::detail
