#pragma once

#include <vector>

#include "examples/inspect/config.hpp"
#include "examples/inspect/norm_finding.hpp"

namespace steady::examples::inspect {

/// What is known about a model besides the norm at hand.
struct Evidence {
  const TensorList& list;
  const Config& config;
  /// By the config; null: it does not tell. A norm's own family may be known by its names.
  const Architecture* family = nullptr;
  bool convolutional = false;  ///< most matrices are kernels of convolutions
};

/// Fills kind, certainty, eps, unit offset, per_head and trained of a norm, each with its reasons;
/// where the file leaves the kind open, with what would decide it.
void judge(NormFinding& norm, const Evidence& evidence);

/// The norms that a family has without tensors, for the layers in the file.
[[nodiscard]] std::vector<NormFinding> norms_without_tensors(const Evidence& evidence);

}  // namespace steady::examples::inspect
