#include <steadygrad/layers/norm/unit_sphere.hpp>

#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/norm/l2_normalize.hpp>
#include <utility>
#include <vector>

namespace steady {
namespace {

Tensor unit_vectors(const Tensor& weight, UnitVectors which) {
  if (which == UnitVectors::Rows) return l2_normalize(weight, {weight.dim(1)});
  return transpose(l2_normalize(transpose(weight, 0, 1), {weight.dim(0)}), 0, 1);
}

SphereUpdate::Options checked(SphereUpdate::Options o) {
  STEADY_CHECK(Error, o.features >= 1, "SphereUpdate: needs features >= 1; got {}", o.features);
  if (o.scale == 0.0) o.scale = 1.0 / std::sqrt(static_cast<double>(o.features));
  STEADY_CHECK(Error, std::isfinite(o.init) && o.init > 0 && std::isfinite(o.scale) && o.scale > 0,
               "SphereUpdate: init and scale must be finite and positive; got {} and {}", o.init,
               o.scale);
  return o;
}

}  // namespace

std::int64_t normalize_weights(Module& model, const UnitChoice& choice) {
  std::vector<std::pair<Parameter, UnitVectors>> chosen;
  for (const Parameter& p : model.parameters()) {
    if (p.role != Role::Weight && p.role != Role::Embedding) continue;
    const UnitVectors which = choice                ? choice(p)
                              : p.value.rank() == 2 ? UnitVectors::Rows
                                                    : UnitVectors::None;
    if (which == UnitVectors::None) continue;
    STEADY_CHECK(ShapeError, p.value.rank() == 2,
                 "normalize_weights: needs weights of two axes; got {} {}", p.name,
                 describe(p.value));
    chosen.emplace_back(p, which);
  }
  const NoRecord none;
  for (auto& [parameter, which] : chosen) {
    parameter.value.copy_from(unit_vectors(parameter.value, which), "normalize_weights");
  }
  return std::ssize(chosen);
}

SphereUpdate::SphereUpdate(Options options)
    : o(checked(options)),
      alpha_weight(
          add_parameter("alpha_weight", Tensor::full({o.features}, o.scale), Role::NormScale)) {}

Tensor SphereUpdate::operator()(const Tensor& h, const Tensor& branch) {
  return run(h, [&](const Tensor& state) {
    check_defined("SphereUpdate", "h", state);
    check_defined("SphereUpdate", "branch", branch);
    STEADY_CHECK(
        ShapeError,
        state.rank() >= 1 && state.dim(-1) == o.features && state.shape() == branch.shape(),
        "SphereUpdate: needs h and branch [..., {}] of one shape; got h {}, branch {}", o.features,
        steady::describe(state), steady::describe(branch));
    const Tensor alpha = abs(alpha_weight) * (o.init / o.scale);
    const Tensor target = l2_normalize(branch, {o.features});
    return l2_normalize(state + alpha * (target - state), {o.features});
  });
}

Tensor SphereUpdate::forward(const Tensor& x) {
  (void)x;
  throw Error("SphereUpdate: needs a branch: call it with (h, branch)");
}

std::string SphereUpdate::describe() const {
  return fmt::format("SphereUpdate({}, init={}, scale={})", o.features, o.init, o.scale);
}

}  // namespace steady
