#include <steadygrad/layers/norm/adaptive_norm.hpp>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/ops/split.hpp>
#include <steadygrad/layers/norm/norm_op.hpp>
#include <vector>

namespace steady {
namespace {

AdaptiveNorm::Options checked(AdaptiveNorm::Options o) {
  STEADY_CHECK(Error, o.features >= 1 && o.condition >= 1,
               "AdaptiveNorm: features and condition must be at least 1; got {} and {}", o.features,
               o.condition);
  return o;
}

/// [B, features] as [B, 1, ..., 1, features], to stand beside x.
Tensor for_all_positions(const Tensor& t, const Tensor& x) {
  if (t.rank() == x.rank()) return t;
  std::vector<std::int64_t> extents(static_cast<std::size_t>(x.rank()), 1);
  extents.front() = t.dim(0);
  extents.back() = t.dim(-1);
  return reshape(t, Shape(std::span<const std::int64_t>(extents)));
}

}  // namespace

AdaptiveNorm::AdaptiveNorm(Options options)
    : o(checked(std::move(options))),
      norm(add_norm("norm", o.norm, o.features)),
      linear(add<Linear>("linear", {.in = o.condition,
                                    .out = 2 * o.features,
                                    .weight_init = constant_init(0),
                                    .bias_init = constant_init(0)})) {}

Tensor AdaptiveNorm::operator()(const Tensor& x, const Tensor& condition) {
  return run(x, [&](const Tensor& input) {
    detail::check_features("AdaptiveNorm", input, o.features);
    check_defined("AdaptiveNorm", "condition", condition);
    const int leading = condition.rank() - 1;
    STEADY_CHECK(ShapeError,
                 condition.dim(-1) == o.condition &&
                     (leading == 1 || leading == input.rank() - 1) &&
                     condition.shape().slice(0, leading) == input.shape().slice(0, leading),
                 "AdaptiveNorm: condition must be [B, {}] or have it for every position of x; got "
                 "condition {}, x {}",
                 o.condition, steady::describe(condition), steady::describe(input));
    const std::vector<Tensor> parts = split(linear(condition), {o.features, o.features});
    const Tensor scale = for_all_positions(parts[1], input);
    return norm(input) * (1.0 + scale) + for_all_positions(parts[0], input);
  });
}

Tensor AdaptiveNorm::forward(const Tensor& x) {
  (void)x;
  throw Error("AdaptiveNorm: needs a condition: call it with (x, condition)");
}

std::string AdaptiveNorm::describe() const {
  return fmt::format("AdaptiveNorm({}, condition={}, norm={})", o.features, o.condition,
                     to_string(o.norm));
}

}  // namespace steady
