#include <steadygrad/layers/decoder.hpp>

#include <algorithm>
#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/loss.hpp>
#include <steadygrad/core/ops/matmul.hpp>
#include <steadygrad/core/path.hpp>

namespace steady {
namespace {

/// A name in state() and nothing else.
struct Group final : Module {
  struct Options {};
  explicit Group(Options) {}
  [[nodiscard]] std::string describe() const override { return "Group"; }
};

Decoder::Options checked(Decoder::Options o) {
  STEADY_CHECK(Error, o.vocab >= 1 && o.context >= 1 && o.dim >= 1 && o.layers >= 1,
               "Decoder: vocab, context, dim and layers must be at least 1; got {}, {}, {}, {}",
               o.vocab, o.context, o.dim, o.layers);
  STEADY_CHECK(Error, std::isfinite(o.init_std) && o.init_std >= 0.0,
               "Decoder: init_std must be positive, or 0 for the parts' defaults; got {}",
               o.init_std);
  STEADY_CHECK(Error, !(o.tied && o.head_bias),
               "Decoder: a tied head is the token table and has no bias");
  STEADY_CHECK(Error, std::isfinite(o.rope_theta) && o.rope_theta > 0.0,
               "Decoder: rope_theta must be finite and positive; got {}", o.rope_theta);
  return o;
}

/// Normal of deviation init_std * factor; empty for the parts' defaults.
Init initial(const Decoder::Options& o, double factor = 1.0) {
  return o.init_std > 0.0 ? normal_init(0.0, o.init_std * factor) : Init();
}

TransformerBlock::Options block_options(const Decoder::Options& o, std::int64_t layer) {
  const double gain = o.placement.initial_gain(o.layers);
  // A placement with a gain of its own takes care of the depth by it.
  const double depth = o.scale_residual_init && gain == 1.0
                           ? 1.0 / std::sqrt(2.0 * static_cast<double>(o.layers))
                           : 1.0;
  const Init zero = o.init_std > 0.0 ? constant_init(0.0) : Init();
  Attention::Options attention{.dim = o.dim,
                               .heads = o.heads,
                               .kv_heads = o.kv_heads,
                               .head_dim = o.head_dim,
                               .fused = family_names(o.family).fused,
                               .qkv_bias = o.bias,
                               .out_bias = o.bias,
                               .qk_norm = o.qk_norm,
                               .qk_norm_per_head = o.qk_norm_per_head,
                               .head_scale = o.normformer,
                               .dropout = o.dropout,
                               .weight_init = initial(o),
                               .value_init = initial(o, gain),
                               .out_init = initial(o, gain * depth),
                               .bias_init = zero};
  if (o.positions == Positions::Rotary) {
    attention.rotary = RotaryOptions{.theta = o.rope_theta, .style = o.rope_style};
  }
  Mlp::Options mlp{.dim = o.dim,
                   .hidden = o.hidden,
                   .kind = o.mlp,
                   .bias = o.bias,
                   .dropout = o.dropout,
                   .weight_init = initial(o, gain),
                   .down_init = initial(o, gain * depth),
                   .bias_init = zero};
  if (o.normformer) {
    attention.out_norm = o.norm;
    mlp.norm = o.norm;
  }
  return {.attention = attention,
          .mlp = mlp,
          .norm = o.norm,
          .placement = o.placement,
          .gate = o.gate,
          .family = o.family,
          .layer = layer,
          .layers = o.layers};
}

}  // namespace

Decoder::Options Decoder::gpt2(const Sizes& s) {
  return {
      .vocab = s.vocab, .context = s.context, .dim = s.dim, .layers = s.layers, .heads = s.heads};
}

Decoder::Options Decoder::llama(const Sizes& s) {
  return {.vocab = s.vocab,
          .context = s.context,
          .dim = s.dim,
          .layers = s.layers,
          .heads = s.heads,
          .norm = NormSpec::parse("rms"),
          .positions = Positions::Rotary,
          .mlp = MlpKind::SwiGlu,
          .bias = false,
          .tied = false,
          .scale_residual_init = false,
          .family = Family::Llama};
}

Decoder::Options Decoder::minimind(const Sizes& sizes, std::int64_t kv_heads) {
  Options o = llama(sizes);
  o.kv_heads = kv_heads;
  o.qk_norm = o.norm;
  o.rope_theta = 1e6;
  o.tied = true;
  return o;
}

Decoder::Decoder(Options options)
    : o(checked(std::move(options))),
      stack_(add<Group>(family_names(o.family).stack, {})),
      tokens_(stack_.add<Embedding>(family_names(o.family).tokens,
                                    {.count = o.vocab, .dim = o.dim, .weight_init = initial(o)})),
      positions_(o.positions != Positions::Learned
                     ? nullptr
                     : &stack_.add<Embedding>(
                           family_names(o.family).positions,
                           {.count = o.context, .dim = o.dim, .weight_init = initial(o)})),
      embed_norm_(o.embed_norm ? &stack_.add_norm(family_names(o.family).embed_norm, o.norm, o.dim)
                               : nullptr),
      dropout_(o.dropout > 0.0 ? &stack_.add<Dropout>("drop", {.p = o.dropout}) : nullptr),
      layers_(stack_.add<Group>(family_names(o.family).layers, {})) {
  for (std::int64_t layer = 1; layer <= o.layers; ++layer) {
    blocks_.push_back(
        &layers_.add<TransformerBlock>(std::to_string(layer - 1), block_options(o, layer)));
  }
  const FamilyNames& names = family_names(o.family);
  if (o.placement.final_norm()) final_norm_ = &stack_.add_norm(names.final_norm, o.norm, o.dim);
  if (!o.tied) {
    head_ = &add<Linear>(names.head, {.in = o.dim,
                                      .out = o.vocab,
                                      .bias = o.head_bias,
                                      .weight_init = initial(o),
                                      .bias_init = constant_init(0.0)});
  }
}

Tensor Decoder::embed(const Tensor& ids, std::int64_t first) {
  Tensor h = tokens_(ids);
  if (positions_ != nullptr) h = h + positions_->rows(first, ids.dim(1));
  if (embed_norm_ != nullptr) h = (*embed_norm_)(h);
  return dropout_ == nullptr ? h : (*dropout_)(h);
}

Tensor Decoder::decode(const Tensor& ids, const DecoderInputs& inputs) {
  check_defined("Decoder", "ids", ids);
  STEADY_CHECK(ShapeError, ids.rank() == 2 && ids.dtype() == Dtype::I64,
               "Decoder: needs ids i64 [B, T]; got {}", steady::describe(ids));
  const std::int64_t first = inputs.cache == nullptr ? 0 : inputs.cache->length();
  STEADY_CHECK(Error, first + ids.dim(1) <= o.context,
               "Decoder: the context is {} tokens; got ids {} after {} tokens", o.context,
               to_string(ids.shape()), first);
  const auto keep = [&](std::string name, const Tensor& x) {
    if (inputs.hidden != nullptr) inputs.hidden->push_back({std::move(name), x});
  };
  ResidualStream s;
  {
    const PathScope stack(stack_.name());
    s.x = embed(ids, first);
    keep("embed", s.x);
    const PathScope layers(layers_.name());
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const BlockInputs block{.self = {.mask = inputs.mask,
                                       .cache = inputs.cache,
                                       .cache_layer = static_cast<std::int64_t>(i)}};
      s = o.recompute && inputs.cache == nullptr ? blocks_[i]->recomputed(s, block)
                                                 : blocks_[i]->step(s, block);
      if (inputs.hidden != nullptr) s = settled(s);
      keep(fmt::format("layer_{}", i), s.x);
    }
  }
  const Tensor h = [&] {
    const PathScope stack(stack_.name());
    return finish(o.placement, s, final_norm_);
  }();
  keep("final_norm", h);
  if (inputs.cache != nullptr) inputs.cache->advance(ids.dim(1));
  return head_ == nullptr ? linear(h, tokens_.weight) : (*head_)(h);
}

Tensor Decoder::operator()(const Tensor& ids, const DecoderInputs& inputs) {
  return run(ids, [&](const Tensor& x) { return decode(x, inputs); });
}

Tensor Decoder::loss(const Tensor& ids, const Tensor& targets) {
  return cross_entropy((*this)(ids), targets);
}

std::string Decoder::describe() const {
  return fmt::format("Decoder(vocab={}, context={}, dim={}, layers={}, heads={}, {}, {})", o.vocab,
                     o.context, o.dim, o.layers, o.heads, to_string(o.placement),
                     to_string(o.norm));
}

Tensor next_token_targets(const Tensor& labels) {
  check_defined("next_token_targets", "labels", labels);
  STEADY_CHECK(ShapeError, labels.rank() == 2 && labels.dtype() == Dtype::I64 && labels.dim(1) >= 1,
               "next_token_targets: needs i64 [B, T]; got {}", describe(labels));
  constexpr std::int64_t Ignored = -100;
  Tensor targets = Tensor::full(labels.shape(), static_cast<double>(Ignored), Dtype::I64);
  const auto from = labels.data<std::int64_t>();
  const auto to = targets.mutable_data<std::int64_t>();
  const std::int64_t width = labels.dim(1);
  for (std::int64_t row = 0; row < labels.dim(0); ++row) {
    std::copy_n(from.begin() + row * width + 1, width - 1, to.begin() + row * width);
  }
  return targets;
}

}  // namespace steady
