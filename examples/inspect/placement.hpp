#pragma once

#include <vector>

#include "examples/inspect/norm_finding.hpp"

namespace steady::examples::inspect {

/// Fills `place` of every norm from its name, those of the same block, and the family (may be
/// null); returns how the norms of a block stand as a whole.
Placement find_places(std::vector<NormFinding>& norms, const Architecture* family);

}  // namespace steady::examples::inspect
