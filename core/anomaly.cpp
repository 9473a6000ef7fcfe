#include <steadygrad/core/anomaly.hpp>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/finite.hpp>
#include <steadygrad/core/path.hpp>

namespace steady {
namespace {

constexpr AnomalyOptions Off{.nan = false, .inf = false};
thread_local AnomalyOptions active = Off;
thread_local int backwards = 0;

/// "3 NaN and 0 inf of 12 elements, first at 4", or "" when there is nothing to report.
std::string non_finite(const Tensor& t) {
  if (!t.defined() || !is_float(t.dtype())) return "";
  return dispatch_float("anomaly", t.dtype(), [&]<FloatElement T>() -> std::string {
    if (kernels::all_finite(t.data<T>())) return "";
    const kernels::NonFinite found = kernels::count_non_finite(t.data<T>());
    if (!(active.nan && found.nan > 0) && !(active.inf && found.inf > 0)) return "";
    return fmt::format("{} NaN and {} inf of {} elements, first at {}", found.nan, found.inf,
                       t.numel(), found.first);
  });
}

[[noreturn]] void fail(const std::string& path, const std::string& text) {
  NonFiniteError error(text);
  error.locate(path);
  throw error;
}

}  // namespace

AnomalyMode::AnomalyMode(AnomalyOptions options) : before_(std::exchange(active, options)) {}
AnomalyMode::~AnomalyMode() { active = before_; }

namespace detail {

bool anomaly_mode() { return active.nan || active.inf; }

InBackward::InBackward() { ++backwards; }
InBackward::~InBackward() { --backwards; }

void check_forward(const char* op, std::span<const Tensor> outputs,
                   std::span<const Tensor> inputs) {
  if (backwards > 0) return;
  for (const Tensor& output : outputs) {
    const std::string bad = non_finite(output);
    if (bad.empty()) continue;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::string source = non_finite(inputs[i]);
      if (source.empty()) continue;
      fail(current_path(),
           fmt::format(
               "{}: input {} came in from outside with values that are not finite; {} has {}", op,
               i, describe(inputs[i]), source));
    }
    fail(current_path(), fmt::format("{}: forward produced values that are not finite; {} has {}",
                                     op, describe(output), bad));
  }
}

void check_backward(const char* op, const std::string& path, int input, const Tensor& gradient) {
  const std::string bad = non_finite(gradient);
  if (bad.empty()) return;
  fail(path, fmt::format("{}: backward produced values that are not finite for input {}; {} has {}",
                         op, input, describe(gradient), bad));
}

}  // namespace detail
}  // namespace steady
