#include <steadygrad/layers/norm/simple_rms_norm.hpp>

#include <steadygrad/layers/norm/norm_kinds.hpp>

namespace steady::detail {

NormKind simple_rms_kind() {
  return {"srms(eps=1e-6[0..])", [](const NormOptions& options, std::int64_t features) {
            return std::make_unique<RmsNorm>(RmsNorm::Options{
                .normalized_shape = {features}, .eps = options.number("eps"), .affine = false});
          }};
}

}  // namespace steady::detail
