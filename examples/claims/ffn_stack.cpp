#include "examples/claims/ffn_stack.hpp"

#include <fmt/core.h>

#include <steadygrad/core/ops/elementwise.hpp>

namespace steady::examples::claims {

FfnStack::FfnStack(const Options& options) : o(options) {
  const auto map = [&](const char* name, std::int64_t layer) {
    return &add<Linear>(fmt::format("{}{}", name, layer),
                        {.in = o.features,
                         .out = o.features,
                         .bias = false,
                         .weight_init = kaiming_normal_init(o.gain)});
  };
  for (std::int64_t l = 1; l <= o.layers; ++l) {
    up_.push_back(map("up", l));
    down_.push_back(map("down", l));
    residual_.emplace_back(
        *this, Residual::Options{.placement = o.placement,
                                 .norm = o.norm,
                                 .gate = o.gate,
                                 .features = o.features,
                                 .site = {.layer = l, .layers = o.layers, .branches = 1},
                                 .before_name = fmt::format("before{}", l),
                                 .after_name = fmt::format("after{}", l),
                                 .gate_name = fmt::format("gate{}", l)});
  }
  if (o.final_norm && o.placement.final_norm()) {
    final_norm_ = &add_norm("final_norm", o.norm, o.features);
  }
}

FfnStack::Pass FfnStack::operator()(const Tensor& x) const {
  Pass pass{.stream = {x}, .hidden = {}, .branch = {}, .y = {}};
  ResidualStream s{x};
  for (std::size_t l = 0; l < residual_.size(); ++l) {
    s = residual_[l](s, [&](const Tensor& h) {
      pass.hidden.push_back(relu((*up_[l])(o.preactivated ? relu(h) : h)));
      pass.branch.push_back((*down_[l])(pass.hidden.back()));
      return pass.branch.back();
    });
    pass.stream.push_back(s.x);
  }
  pass.y = finish(o.placement, s, final_norm_);
  return pass;
}

}  // namespace steady::examples::claims
