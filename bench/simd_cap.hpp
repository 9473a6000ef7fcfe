#pragma once

#include <hwy/targets.h>

#include <string>

namespace steady::bench {

/// Lets the kernels use this SIMD target alone, e.g. "AVX2"; false when there is none of that name.
inline bool cap_target(const std::string& name) {
  for (const auto target : hwy::SupportedAndGeneratedTargets()) {
    if (name != hwy::TargetName(target)) continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    return true;
  }
  return false;
}

}  // namespace steady::bench
