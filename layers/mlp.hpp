#pragma once

#include <cstdint>
#include <steadygrad/layers/dropout.hpp>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <string>
#include <string_view>

namespace steady {

/// The function between the two linear maps of an Mlp.
enum class MlpKind : std::uint8_t { Gelu, GeluTanh, Relu, SwiGlu };

/// "gelu", "gelu_tanh", "relu", "swiglu".
[[nodiscard]] std::string_view to_string(MlpKind kind);
/// The reverse; throws Error that lists the choices.
[[nodiscard]] MlpKind parse_mlp_kind(std::string_view text);

/// What the linear maps of an Mlp are called in state(). `gate` is used by SwiGlu only.
struct MlpNames {
  std::string up = "fc1";
  std::string down = "fc2";
  std::string gate = "gate";
};

/// The feed-forward part of a Transformer block, at each position alone: x, y: [..., dim].
///   y = down(a(up(x))), a = gelu, its tanh approximation, or relu      [Vaswani et al. 2017, eq.
///   2] y = down(silu(gate(x)) * up(x)) for SwiGlu                         [Shazeer 2020, eq. 6]
/// With `norm`, what enters `down` is normalised first                  [NormFormer, Shleifer 2021]
/// Dropout acts on y in train mode. Throws Error for options out of range, ShapeError for another
/// last axis.
class Mlp : public Layer {
 public:
  struct Options {
    std::int64_t dim = 0;
    std::int64_t hidden = 0;  ///< 0: 4 dim; for SwiGlu 8/3 dim, rounded up to a multiple of 8
    MlpKind kind = MlpKind::Gelu;
    bool bias = true;
    NormSpec norm = {};     ///< over the hidden features, as child "norm"
    double dropout = 0.0;   ///< probability of zero
    Init weight_init = {};  ///< of gate and up; empty: that of Linear
    Init down_init = {};    ///< of down; empty: that of Linear
    Init bias_init = {};
    MlpNames names = {};
  };
  explicit Mlp(Options options);

  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string describe() const override;

  const Options o;

 private:
  [[nodiscard]] Tensor hidden(const Tensor& x);

  Linear* gate_ = nullptr;
  Linear& up_;
  Layer* norm_ = nullptr;
  Linear& down_;
  Dropout* dropout_ = nullptr;
};

}  // namespace steady
