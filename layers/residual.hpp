#pragma once

#include <cstdint>
#include <functional>
#include <steadygrad/layers/gate.hpp>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/named_choice.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <steadygrad/layers/norm/sum_and_norm.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace steady {

/// Where a residual branch f has its norm N, as text. x: the branch's input, y: its output.
///   pre         y = x + f(N(x))
///   post        y = N(x + f(x))
///   sandwich    y = x + N2(f(N1(x)))
///   none        y = x + f(x)
///   deepnorm    y = N(a x + f(x)), a = (2 layers)^(1/4)
///   scaled_pre  y = x + f(N(x) / sqrt(layer))
///   b2t         post, and the last branch of a block adds the block's input inside its norm
///   resi_dual   y = N(x + f(x)) beside s' = s + f(x); at the end x + N(s)
///   output      y = x + N(f(x))
///   hybrid      attention: y = x + f(x), with norms of q, k and v; feed-forward: h = N(x),
///               y = h + f(h)
///   mix(post=0.25)  post in the first part of the layers, pre in the others
/// Papers and equations stand beside the formulas. A hyphen is as good as an underscore.
class Placement {
 public:
  /// pre
  Placement() : Placement(parse("pre")) {}
  /// Throws Error naming the offending token and the choices.
  [[nodiscard]] static Placement parse(std::string_view text);
  [[nodiscard]] const std::string& name() const { return choice_.name(); }
  /// An option's value; throws Error for a name that the placement does not have.
  [[nodiscard]] double number(std::string_view option) const { return choice_.number(option); }

  /// Whether a norm ends the stack of layers.
  [[nodiscard]] bool final_norm() const;
  /// Whether attention normalises its queries, keys and values.
  [[nodiscard]] bool qkv_norm() const;
  /// Factor of the initial weights of the values, the attention output and the feed-forward maps.
  [[nodiscard]] double initial_gain(std::int64_t layers) const;
  /// Its row of the table in residual.cpp.
  [[nodiscard]] const struct PlacementRule& rule() const;

  friend bool operator==(const Placement&, const Placement&) = default;
  friend std::string to_string(const Placement& placement) { return placement.choice_.text(); }

 private:
  explicit Placement(detail::NamedChoice choice) : choice_(std::move(choice)) {}
  detail::NamedChoice choice_;
};

/// The names of all placements, with their options.
[[nodiscard]] std::vector<std::string> placement_grammars();

/// Where in a stack of layers a residual branch is.
struct ResidualSite {
  std::int64_t layer = 1;     ///< from 1
  std::int64_t layers = 1;    ///< of the stack
  int branch = 0;             ///< in its block, from 0
  int branches = 2;           ///< of its block
  bool feed_forward = false;  ///< the branch is no attention
};

/// Which norms a branch has.
struct ResidualNorms {
  bool before = false;  ///< of what the branch reads
  bool after = false;   ///< of what it, or the sum, gives
};
[[nodiscard]] ResidualNorms residual_norms(const Placement& placement, const ResidualSite& site);

/// What flows from branch to branch: the hidden state x, [..., features], and for placements that
/// carry a second one, `side`. Inside a stack of layers what the last branch added may still stand
/// apart, as `added`: the state is then x + added, and the norm that comes next makes the sum in
/// its own pass.
struct ResidualStream {
  Tensor x;
  Tensor side = {};
  Tensor added = {};
};
/// The same stream with nothing apart.
[[nodiscard]] ResidualStream settled(const ResidualStream& stream);

/// A branch: a function of one tensor that keeps its shape.
using Branch = std::function<Tensor(const Tensor&)>;

/// One residual branch of a module: registers the norms and the gate that its placement needs as
/// the module's children, and joins a branch to the stream by the placement's formula. The gate
/// multiplies what is added.
class Residual {
 public:
  struct Options {
    Placement placement = {};
    NormSpec norm = {};
    Gate gate = {};
    std::int64_t features = 0;
    ResidualSite site = {};
    std::string before_name = "norm";  ///< child names
    std::string after_name = "norm_out";
    std::string gate_name = "gate";
  };
  /// Throws Error for a site outside its stack, and what the norms throw.
  Residual(Module& host, const Options& options);

  [[nodiscard]] ResidualStream operator()(const ResidualStream& stream,
                                          const Branch& branch) const {
    return settled(advance(stream, branch));
  }
  /// The same, but what the branch adds may stand apart.
  [[nodiscard]] ResidualStream advance(const ResidualStream& stream, const Branch& branch) const;

  // --- for the formulas ---
  /// The hidden state of a stream, and the norm of it.
  [[nodiscard]] SumAndNorm before(const ResidualStream& stream) const;
  [[nodiscard]] Tensor after(const Tensor& x) const { return (*after_)(x); }
  /// after(a + b)
  [[nodiscard]] Tensor after_sum(const Tensor& a, const Tensor& b) const;
  /// What is added for the branch's output f.
  [[nodiscard]] Tensor gated(const Tensor& f) const { return gate_ ? (*gate_)(f) : f; }
  [[nodiscard]] const ResidualSite& site() const { return site_; }
  [[nodiscard]] const Placement& placement() const { return placement_; }

 private:
  Placement placement_;
  ResidualSite site_;
  Layer* before_ = nullptr;
  Layer* after_ = nullptr;
  Layer* gate_ = nullptr;
};

/// What leaves a stack of layers; `norm` is its final norm, or null for none.
[[nodiscard]] Tensor finish(const Placement& placement, const ResidualStream& stream, Layer* norm);

}  // namespace steady
