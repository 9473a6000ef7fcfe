#include <steadygrad/layers/norm/norm_kinds.hpp>

namespace steady::detail {

NormKind none_kind();
NormKind batch_kind();
NormKind layer_kind();
NormKind rms_kind();

std::vector<NormKind> norm_kinds() { return {none_kind(), batch_kind(), layer_kind(), rms_kind()}; }

}  // namespace steady::detail
