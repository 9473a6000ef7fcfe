#include <steadygrad/core/kernels/simd_target.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/simd_target.cpp"
#include <hwy/foreach_target.h>

#include <steadygrad/core/kernels/simd-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace steady {
namespace {
HWY_EXPORT(target_name);
}  // namespace

namespace kernels {

const char* simd_target() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace kernels
}  // namespace steady
#endif
