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
    Claim{"qk_norm", "Henry 2020; Dehghani 2023",
          "attention logits grow with the weights and at large rates, QK-norm bounds them",
          qk_norm},
    Claim{"postln_qk_vanish", "Noci et al. 2022; Wang 2022",
          "deep post-norm aligns all tokens and then queries and keys get no gradient; DeepNorm "
          "keeps tokens apart",
          postln_qk_vanish},
    Claim{"warmup", "Xiong 2020; Wang 2022; Bachlechner 2021",
          "post-norm without warm-up learns nothing at a rate where pre-norm trains", warmup},
    Claim{
        "amplification", "Liu et al. 2020",
        "what a small change of the weights does to the output grows with the depth, linearly for "
        "post-norm and slower for pre-norm",
        amplification},
    Claim{"small_batch", "Wu & He 2018",
          "BatchNorm breaks with two samples per batch, GroupNorm not", small_batch},
    Claim{"max_lr_and_init", "Bjorck 2018; He 2015",
          "BatchNorm allows far larger rates; 30 layers with Xavier's weights stall without it",
          max_lr_and_init},
    Claim{"rezero_isometry", "Bachlechner et al. 2021",
          "a gate that starts at zero makes the whole net an isometry, and 128 layers train",
          rezero_isometry},
    Claim{"santurkar", "Santurkar et al. 2018",
          "with BatchNorm the gradient stays nearly the same along a step", santurkar},
    Claim{"pre_rmsnorm_equiv", "Jiang et al. 2023",
          "pre-LayerNorm equals pre-RMSNorm of a centred stream", pre_rmsnorm_equiv},
    Claim{"rms_speed", "Zhang & Sennrich 2019", "RMSNorm takes less time than LayerNorm", rms_speed,
          /*alone=*/true},
    Claim{"curse_of_depth_angle", "Sun et al. 2025",
          "deep pre-norm layers turn the stream ever less", curse_of_depth_angle},
    Claim{"input_scaling", "LeCun et al. 1998",
          "standardized inputs train faster than min-max scaled ones, raw ones not at all",
          input_scaling},
};

}  // namespace

std::span<const Claim> all_claims() { return Claims; }

}  // namespace steady::examples::claims
