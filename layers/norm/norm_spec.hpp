#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <steadygrad/layers/layer.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace steady {

/// The options of a norm by name, defaults filled in. Every reader throws Error for a name that the
/// norm's grammar does not have, and for a value of another kind.
class NormOptions {
 public:
  [[nodiscard]] double number(std::string_view name) const;
  /// A number that must be whole.
  [[nodiscard]] std::int64_t integer(std::string_view name) const;
  [[nodiscard]] bool flag(std::string_view name) const;
  [[nodiscard]] const std::string& text(std::string_view name) const;

  friend bool operator==(const NormOptions&, const NormOptions&) = default;

 private:
  friend class NormSpec;
  friend std::string to_string(const NormSpec& spec);
  struct Value {
    std::string name;
    std::string text;
    bool is_default;
    friend bool operator==(const Value&, const Value&) = default;
  };
  std::vector<Value> values_;  // in the order of the grammar
};

/// Which norm, as text: a name, or name(option=value, ...).
///
///   none
///   batch(eps=1e-5, momentum=0.1 or cumulative, affine=true, bias=true, track=true, sync=false)
///   layer(eps=1e-5, affine=true, bias=true, over=position or sample)
///   rms(eps=1e-6, affine=true, unit_offset=false)
///   group(groups=32, eps=1e-5, affine=true, bias=true)
///   instance(eps=1e-5, affine=false, bias=true, track=false, momentum=0.1)
///   ghost(size=32, eps=1e-5, momentum=0.1 or cumulative, affine=true, bias=true, track=true)
///   mean_only(momentum=0.1 or cumulative, bias=true, track=true)
///   renorm(eps=1e-5, momentum=0.1 or cumulative, affine=true, bias=true, rmax=3, dmax=5)
///   frn(eps=1e-6, learn_eps=false, tlu=true)
///   lrn(size=5, alpha=1e-4, beta=0.75, k=1)
///   prms(p=0.0625, eps=1e-6, affine=true)         RMS of the first p of the features
///   srms(eps=1e-6)                                RMS without a gain
///   scale(eps=1e-5)                               one gain times the unit vector of the row
///   l2(eps=1e-12)                                 the unit vector
///   dyt(alpha=0.5, affine=true, bias=true)        tanh(alpha x) in place of a norm
///   derf(alpha=0.5, shift=0, affine=true, bias=true)           erf(alpha x + shift)
///   adanorm(c=1, k=0.1, eps=1e-5, detach=true)    layer times c (1 - k times itself)
///
/// Options that are left out have these values. momentum is the weight of the new batch, in [0, 1];
/// track=false keeps no running statistics. layer is per position over the features, and with
/// over=sample over all positions and features of a sample with a gain per feature. affine=false
/// learns neither weight nor bias.
///
/// batch, layer and rms also take simulate=none, bf16 or fp16, with it accumulate=f32 or same, and
/// cast=after or before the weight: the forward of low-precision code, number for number
/// (SimulatedPrecision), slow and with the exact norm's derivatives.
class NormSpec {
 public:
  /// none
  NormSpec() = default;
  /// Throws Error, in one line: the offending token, and the grammar or the known norms.
  [[nodiscard]] static NormSpec parse(std::string_view text);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const NormOptions& options() const { return options_; }
  friend bool operator==(const NormSpec&, const NormSpec&) = default;

 private:
  std::string name_ = "none";
  NormOptions options_{};
};

/// The canonical text: options that differ from their defaults, in the order of the grammar,
/// numbers in their shortest form. parse(to_string(spec)) == spec, in every locale.
[[nodiscard]] std::string to_string(const NormSpec& spec);

/// The layer that `spec` describes, over `features` features (the last axis). Throws Error for
/// features < 1 and whatever the layer's constructor throws.
[[nodiscard]] std::unique_ptr<Layer> make_norm(const NormSpec& spec, std::int64_t features);

/// Makes a norm from its options.
using NormFactory =
    std::function<std::unique_ptr<Layer>(const NormOptions& options, std::int64_t features)>;

/// Makes a norm known to NormSpec. `grammar` names it and says its options and defaults:
///   scaled(eps=1e-5[0..], power=0.5[0..1]|learned, affine=true, over=row|sample)
/// a number with its range (either side may be open) and words that may stand in its place; true or
/// false; or words, the first of which is the default. Throws Error for a text that is not a
/// grammar, and for a name that is known already: no norm is replaced.
void register_norm(std::string_view grammar, NormFactory factory);

/// The grammar lines of all norms: built-in ones, then registered ones in their order.
[[nodiscard]] std::vector<std::string> norm_grammars();

}  // namespace steady
