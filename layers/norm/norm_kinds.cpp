#include <steadygrad/layers/norm/norm_kinds.hpp>

namespace steady::detail {

NormKind none_kind();
NormKind batch_kind();
NormKind layer_kind();
NormKind rms_kind();
NormKind group_kind();
NormKind instance_kind();
NormKind ghost_kind();
NormKind mean_only_kind();
NormKind renorm_kind();
NormKind frn_kind();
NormKind lrn_kind();
NormKind partial_rms_kind();
NormKind simple_rms_kind();
NormKind scale_kind();
NormKind l2_kind();
NormKind dynamic_tanh_kind();
NormKind dynamic_erf_kind();
NormKind ada_kind();

std::optional<double> momentum_of(const NormOptions& options) {
  if (options.text("momentum") == "cumulative") return std::nullopt;
  return options.number("momentum");
}

std::vector<NormKind> norm_kinds() {
  // clang-format off
  return {
      none_kind(),
      batch_kind(),
      layer_kind(),
      rms_kind(),
      group_kind(),
      instance_kind(),
      ghost_kind(),
      mean_only_kind(),
      renorm_kind(),
      frn_kind(),
      lrn_kind(),
      partial_rms_kind(),
      simple_rms_kind(),
      scale_kind(),
      l2_kind(),
      dynamic_tanh_kind(),
      dynamic_erf_kind(),
      ada_kind(),
  };
  // clang-format on
}

}  // namespace steady::detail
