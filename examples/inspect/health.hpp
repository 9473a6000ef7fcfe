#pragma once

#include <vector>

#include "examples/inspect/config.hpp"
#include "examples/inspect/norm_finding.hpp"

namespace steady::examples::inspect {

/// Adds to `health` of every norm what is wrong with its values: NaN and infinities; gains that are
/// 0 (below 1e-6 with the unit offset added); gains beyond 20 times the median; running variances
/// below 0 or below 1e-8; parameters of other widths; and, in blocks of a Transformer, a width
/// unlike that of the same norm elsewhere or of the config's hidden_size.
void check_health(std::vector<NormFinding>& norms, const Config& config);

}  // namespace steady::examples::inspect
