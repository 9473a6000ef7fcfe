#pragma once

#include "examples/claims/claim.hpp"

// One experiment per claim, each described in examples/claims/README.md.

namespace steady::examples::claims {

void invariance(Findings& findings, std::uint64_t seed);
void bn_explosion(Findings& findings, std::uint64_t seed);
void smd_equilibrium(Findings& findings, std::uint64_t seed);
void rank_collapse(Findings& findings, std::uint64_t seed);
void variance_laws(Findings& findings, std::uint64_t seed);
void xiong_ratio(Findings& findings, std::uint64_t seed);

}  // namespace steady::examples::claims
