#include <array>

#include "examples/claims/experiments.hpp"

namespace steady::examples::claims {
namespace {

/// Adding a claim is writing its experiment and a row here.
constexpr std::array Claims{
    Claim{"invariance", "Zhang & Sennrich 2019",
          "which changes of weights and data leave the output as it was, norm by norm", invariance},
    Claim{"bn_explosion", "Yang et al. 2019",
          "BatchNorm without skips makes gradients explode with depth, at a rate of the batch size",
          bn_explosion},
    Claim{"smd_equilibrium", "van Laarhoven 2017; Wan et al. 2021",
          "scale-invariant weights under SGD with weight decay settle at an angle of "
          "sqrt(2 lr decay) per step",
          smd_equilibrium},
    Claim{"rank_collapse", "Dong et al. 2021",
          "attention alone loses rank doubly exponentially, skip connections stop it",
          rank_collapse},
    Claim{"variance_laws", "Zhang 2019; De & Smith 2020; Kim 2025",
          "the residual stream grows with depth by a law of its placement", variance_laws},
    Claim{"xiong_ratio", "Xiong et al. 2020",
          "the last layer's gradient does not depend on the depth with post-norm and falls as its "
          "root with pre-norm",
          xiong_ratio},
};

}  // namespace

std::span<const Claim> all_claims() { return Claims; }

}  // namespace steady::examples::claims
