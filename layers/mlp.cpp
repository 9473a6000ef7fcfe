#include <steadygrad/layers/mlp.hpp>

#include <array>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>

namespace steady {
namespace {

constexpr std::array Kinds{MlpKind::Gelu, MlpKind::GeluTanh, MlpKind::Relu, MlpKind::SwiGlu};

Mlp::Options checked(Mlp::Options o) {
  STEADY_CHECK(Error, o.dim >= 1 && o.hidden >= 0,
               "Mlp: dim must be at least 1 and hidden at least 0; got {} and {}", o.dim, o.hidden);
  if (o.hidden == 0) o.hidden = o.kind == MlpKind::SwiGlu ? (8 * o.dim + 23) / 24 * 8 : 4 * o.dim;
  return o;
}

}  // namespace

std::string_view to_string(MlpKind kind) {
  switch (kind) {
    case MlpKind::Gelu:
      return "gelu";
    case MlpKind::GeluTanh:
      return "gelu_tanh";
    case MlpKind::Relu:
      return "relu";
    case MlpKind::SwiGlu:
      return "swiglu";
  }
  return "?";
}

MlpKind parse_mlp_kind(std::string_view text) {
  std::string known;
  for (const MlpKind kind : Kinds) {
    if (text == to_string(kind)) return kind;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", to_string(kind));
  }
  throw Error(fmt::format("mlp '{}': unknown; known: {}", text, known));
}

Mlp::Mlp(Options options)
    : o(checked(std::move(options))),
      gate_(o.kind == MlpKind::SwiGlu ? &add<Linear>(o.names.gate, {.in = o.dim,
                                                                    .out = o.hidden,
                                                                    .bias = o.bias,
                                                                    .weight_init = o.weight_init,
                                                                    .bias_init = o.bias_init})
                                      : nullptr),
      up_(add<Linear>(o.names.up, {.in = o.dim,
                                   .out = o.hidden,
                                   .bias = o.bias,
                                   .weight_init = o.weight_init,
                                   .bias_init = o.bias_init})),
      norm_(o.norm == NormSpec() ? nullptr : &add_norm("norm", o.norm, o.hidden)),
      down_(add<Linear>(o.names.down, {.in = o.hidden,
                                       .out = o.dim,
                                       .bias = o.bias,
                                       .weight_init = o.down_init,
                                       .bias_init = o.bias_init})),
      dropout_(o.dropout > 0.0 ? &add<Dropout>("dropout", {.p = o.dropout}) : nullptr) {}

Tensor Mlp::hidden(const Tensor& x) {
  switch (o.kind) {
    case MlpKind::Gelu:
      return gelu(up_(x), Gelu::Erf);
    case MlpKind::GeluTanh:
      return gelu(up_(x), Gelu::Tanh);
    case MlpKind::Relu:
      return relu(up_(x));
    case MlpKind::SwiGlu: {
      const Tensor gate = (*gate_)(x);
      return swiglu(gate, up_(x));
    }
  }
  throw Error("Mlp: unknown kind");
}

Tensor Mlp::forward(const Tensor& x) {
  Tensor h = hidden(x);
  if (norm_ != nullptr) h = (*norm_)(h);
  h = down_(h);
  return dropout_ == nullptr ? h : (*dropout_)(h);
}

std::string Mlp::describe() const {
  return fmt::format("Mlp({}, {}, {}{})", o.dim, o.hidden, to_string(o.kind),
                     o.bias ? "" : ", bias=false");
}

}  // namespace steady
