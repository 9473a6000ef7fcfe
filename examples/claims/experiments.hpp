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
void qk_norm(Findings& findings, std::uint64_t seed);
void postln_qk_vanish(Findings& findings, std::uint64_t seed);
void warmup(Findings& findings, std::uint64_t seed);
void amplification(Findings& findings, std::uint64_t seed);
void small_batch(Findings& findings, std::uint64_t seed);
void max_lr_and_init(Findings& findings, std::uint64_t seed);
void rezero_isometry(Findings& findings, std::uint64_t seed);
void santurkar(Findings& findings, std::uint64_t seed);
void pre_rmsnorm_equiv(Findings& findings, std::uint64_t seed);
void rms_speed(Findings& findings, std::uint64_t seed);
void curse_of_depth_angle(Findings& findings, std::uint64_t seed);
void input_scaling(Findings& findings, std::uint64_t seed);

}  // namespace steady::examples::claims
