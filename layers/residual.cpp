#include <steadygrad/layers/residual.hpp>

#include <array>
#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/layers/norm/layer_norm.hpp>
#include <steadygrad/layers/norm/rms_norm.hpp>
#include <typeinfo>

namespace steady {

/// All that a placement is: a row of the table below.
struct PlacementRule {
  const char* grammar;
  ResidualNorms (*norms)(const Placement&, const ResidualSite&);
  ResidualStream (*apply)(const Residual&, const ResidualStream&, const Branch&);
  /// The end of the stack given its norm; null: no norm there unless asked for.
  Tensor (*finish)(Layer& norm, const ResidualStream&) = nullptr;
  double (*initial_gain)(double layers) = nullptr;  ///< null: 1
  bool qkv_norm = false;
};

namespace {

using Stream = ResidualStream;

// --- the formulas: N, N1, N2 are norms, g the gate, l the layer from 1, L the layers -----------

/// y = x + g(f(N(x)))                            [pre-norm: Xiong et al. 2020, figure 1b]
Stream pre(const Residual& r, const Stream& s, const Branch& f) {
  const auto [x, y] = r.before(s);
  return {.x = x, .added = r.gated(f(y))};
}

/// y = N(x + g(f(x)))                            [post-norm: Vaswani et al. 2017; Xiong, figure 1a]
Stream post(const Residual& r, const Stream& s, const Branch& f) {
  return {r.after_sum(s.x, r.gated(f(s.x)))};
}

/// y = x + g(N2(f(N1(x))))                       [Peri-LN: Kim et al. 2025]
Stream sandwich(const Residual& r, const Stream& s, const Branch& f) {
  const auto [x, y] = r.before(s);
  return {.x = x, .added = r.gated(r.after(f(y)))};
}

/// y = x + g(f(x))                               [with the rezero gate: Bachlechner et al. 2021]
Stream none(const Residual& r, const Stream& s, const Branch& f) { return {s.x + r.gated(f(s.x))}; }

/// y = N(a x + g(f(x))), a = (2 L)^(1/4)         [DeepNet: Wang et al. 2022, decoder-only]
Stream deepnorm(const Residual& r, const Stream& s, const Branch& f) {
  const double alpha = std::pow(2.0 * static_cast<double>(r.site().layers), 0.25);
  return {r.after(s.x * alpha + r.gated(f(s.x)))};
}

/// b = (8 L)^(-1/4): its factor of the initial weights.
double deepnorm_gain(double layers) { return std::pow(8.0 * layers, -0.25); }

/// y = x + g(f(N(x) / sqrt(l)))                  [LayerNorm scaling: Sun et al. 2025]
Stream scaled_pre(const Residual& r, const Stream& s, const Branch& f) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(r.site().layer));
  const auto [x, y] = r.before(s);
  return {.x = x, .added = r.gated(f(y * scale))};
}

/// Post-norm; the block's input, kept in `side`, joins the last sum of the block:
/// y = N(x + g(f(x)) + side)                     [B2T connection: Takase et al. 2022]
Stream b2t(const Residual& r, const Stream& s, const Branch& f) {
  const Tensor& input = r.site().branch == 0 ? s.x : s.side;
  const Tensor added = r.gated(f(s.x));
  if (r.site().branch + 1 < r.site().branches) return {r.after_sum(s.x, added), input};
  return {r.after_sum(s.x + added, input)};
}

/// y = N(x + g(f(x))), side' = side + g(f(x)); both start as the embedding.
/// At the end x + N(side)                        [ResiDual: Xie et al. 2023]
Stream resi_dual(const Residual& r, const Stream& s, const Branch& f) {
  const Tensor added = r.gated(f(s.x));
  return {r.after_sum(s.x, added), (s.side.defined() ? s.side : s.x) + added};
}

/// y = x + g(N(f(x)))                            [Swin v2: Liu et al. 2022; OLMo 2, 2024]
Stream output(const Residual& r, const Stream& s, const Branch& f) {
  return {s.x + r.gated(r.after(f(s.x)))};
}

/// Attention, whose q, k and v are normalised:   y = x + g(f(x))
/// Feed-forward, post-norm of the sum before it: h = N(x), y = h + g(f(h))
///                                               [HybridNorm: Zhuo et al. 2025]
Stream hybrid(const Residual& r, const Stream& s, const Branch& f) {
  if (!r.site().feed_forward) return none(r, s, f);
  const Tensor h = r.before(s).norm;
  return {.x = h, .added = r.gated(f(h))};
}

/// Post-norm for the first floor(post * L) layers, pre-norm after them
///                                               [Mix-LN: Li et al. 2024]
bool mix_is_post(const Placement& p, const ResidualSite& site) {
  const double first = std::floor(p.number("post") * static_cast<double>(site.layers));
  return static_cast<double>(site.layer) <= first;
}

Stream mix(const Residual& r, const Stream& s, const Branch& f) {
  return mix_is_post(r.placement(), r.site()) ? post(r, s, f) : pre(r, s, f);
}

// --- norms of a branch, and the end of the stack -----------------------------------------------

ResidualNorms before_only(const Placement&, const ResidualSite&) { return {.before = true}; }
ResidualNorms after_only(const Placement&, const ResidualSite&) { return {.after = true}; }
ResidualNorms both(const Placement&, const ResidualSite&) {
  return {.before = true, .after = true};
}
ResidualNorms neither(const Placement&, const ResidualSite&) { return {}; }
ResidualNorms hybrid_norms(const Placement&, const ResidualSite& s) {
  return {.before = s.feed_forward};
}
ResidualNorms mix_norms(const Placement& p, const ResidualSite& s) {
  return mix_is_post(p, s) ? ResidualNorms{.after = true} : ResidualNorms{.before = true};
}

/// x + added and its norm: in one pass by a norm that can, when nobody asks to see the sum on its
/// way in. Exactly these classes: what derives from them computes something else.
SumAndNorm norm_of_sum(Layer& norm, const Tensor& x, const Tensor& added) {
  const bool same = x.shape() == added.shape() && x.dtype() == added.dtype();
  if (same && !norm.observed() && typeid(norm) == typeid(LayerNorm)) {
    auto& layer = static_cast<LayerNorm&>(norm);
    if (!layer.o.over_sample) return layer.of_sum(x, added);
  }
  if (same && !norm.observed() && typeid(norm) == typeid(RmsNorm)) {
    return static_cast<RmsNorm&>(norm).of_sum(x, added);
  }
  const Tensor sum = x + added;
  return {sum, norm(sum)};
}

SumAndNorm norm_of(Layer& norm, const Stream& s) {
  return s.added.defined() ? norm_of_sum(norm, s.x, s.added) : SumAndNorm{s.x, norm(s.x)};
}

Tensor normalized(Layer& norm, const Stream& s) { return norm_of(norm, s).norm; }
Tensor dual_end(Layer& norm, const Stream& s) {
  return s.x + norm(s.side.defined() ? s.side : s.x);
}

/// Adding a placement is adding its formula above and a row here.
constexpr std::array<PlacementRule, 11> Rules{{
    {"pre", before_only, pre, normalized},
    {"post", after_only, post},
    {"sandwich", both, sandwich, normalized},
    {"none", neither, none},
    {"deepnorm", after_only, deepnorm, nullptr, deepnorm_gain},
    {"scaled_pre", before_only, scaled_pre, normalized},
    {"b2t", after_only, b2t},
    {"resi_dual", after_only, resi_dual, dual_end},
    {"output", after_only, output, normalized},
    {"hybrid", hybrid_norms, hybrid, normalized, nullptr, /*qkv_norm=*/true},
    {"mix(post=0.25[0..1])", mix_norms, mix, normalized},
}};

}  // namespace

std::vector<std::string> placement_grammars() {
  std::vector<std::string> lines;
  for (const PlacementRule& rule : Rules) lines.emplace_back(rule.grammar);
  return lines;
}

Placement Placement::parse(std::string_view text) {
  return Placement(detail::NamedChoice::parse("placement", text, placement_grammars()));
}

const PlacementRule& Placement::rule() const { return Rules[choice_.index()]; }
bool Placement::final_norm() const { return rule().finish != nullptr; }
bool Placement::qkv_norm() const { return rule().qkv_norm; }

double Placement::initial_gain(std::int64_t layers) const {
  return rule().initial_gain == nullptr ? 1.0 : rule().initial_gain(static_cast<double>(layers));
}

ResidualNorms residual_norms(const Placement& placement, const ResidualSite& site) {
  return placement.rule().norms(placement, site);
}

Residual::Residual(Module& host, const Options& o) : placement_(o.placement), site_(o.site) {
  STEADY_CHECK(
      Error,
      site_.layer >= 1 && site_.layer <= site_.layers && site_.branch >= 0 &&
          site_.branch < site_.branches,
      "Residual: needs a layer in 1 .. layers and a branch in 0 .. branches - 1; got layer "
      "{} of {}, branch {} of {}",
      site_.layer, site_.layers, site_.branch, site_.branches);
  const ResidualNorms norms = residual_norms(placement_, site_);
  if (norms.before) before_ = &host.add_norm(o.before_name, o.norm, o.features);
  if (norms.after) after_ = &host.add_norm(o.after_name, o.norm, o.features);
  gate_ = add_gate(host, o.gate_name, o.gate, o.features);
}

ResidualStream settled(const ResidualStream& stream) {
  if (!stream.added.defined()) return stream;
  return {stream.x + stream.added, stream.side};
}

ResidualStream Residual::advance(const ResidualStream& stream, const Branch& branch) const {
  // Only a norm that the branch begins with can take the sum over.
  return placement_.rule().apply(*this, before_ != nullptr ? stream : settled(stream), branch);
}

SumAndNorm Residual::before(const ResidualStream& stream) const {
  return norm_of(*before_, stream);
}

Tensor Residual::after_sum(const Tensor& a, const Tensor& b) const {
  return norm_of_sum(*after_, a, b).norm;
}

Tensor finish(const Placement& placement, const ResidualStream& stream, Layer* norm) {
  if (norm == nullptr) return settled(stream).x;
  const PlacementRule& rule = placement.rule();
  return rule.finish == nullptr ? normalized(*norm, stream) : rule.finish(*norm, stream);
}

}  // namespace steady
