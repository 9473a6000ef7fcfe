#include <steadygrad/layers/attention.hpp>

#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/ops/split.hpp>

namespace steady {
namespace {

Attention::Options checked(Attention::Options o) {
  STEADY_CHECK(Error, o.dim >= 1 && o.heads >= 1 && o.kv_heads >= 0 && o.head_dim >= 0,
               "Attention: dim and heads must be at least 1, kv_heads and head_dim at least 0; got "
               "{}, {}, {}, {}",
               o.dim, o.heads, o.kv_heads, o.head_dim);
  STEADY_CHECK(Error, o.head_dim != 0 || o.dim % o.heads == 0,
               "Attention: heads must divide dim unless head_dim is given; got dim {}, heads {}",
               o.dim, o.heads);
  if (o.head_dim == 0) o.head_dim = o.dim / o.heads;
  if (o.kv_heads == 0) o.kv_heads = o.heads;
  STEADY_CHECK(Error, o.heads % o.kv_heads == 0,
               "Attention: kv_heads must divide heads; got heads {}, kv_heads {}", o.heads,
               o.kv_heads);
  STEADY_CHECK(Error, !o.rotary.has_value() || o.head_dim % 2 == 0,
               "Attention: rotary positions need an even head_dim; got {}", o.head_dim);
  STEADY_CHECK(Error, o.dropout >= 0.0 && o.dropout < 1.0,
               "Attention: dropout must be in [0, 1); got {}", o.dropout);
  STEADY_CHECK(Error, std::isfinite(o.scale) && o.scale >= 0.0,
               "Attention: scale must be positive, or 0 for 1 / sqrt(head_dim); got {}", o.scale);
  STEADY_CHECK(Error, !o.fused || !o.value_init || o.weight_init,
               "Attention: with fused, value_init needs weight_init");
  if (!o.value_init) o.value_init = o.weight_init;
  return o;
}

/// The first `rows` rows by one initializer, the rest by another, each as a weight of its own.
Init by_rows(const Init& first, const Init& rest, std::int64_t rows) {
  if (!first || !rest) return {};
  return [=](Tensor& value, Random& random) {
    Tensor top = Tensor::empty(value.shape().with(0, rows), value.dtype());
    Tensor bottom = Tensor::empty(value.shape().with(0, value.dim(0) - rows), value.dtype());
    first(top, random);
    rest(bottom, random);
    value.copy_from(concat({top, bottom}, 0), "initialize");
  };
}

}  // namespace

Layer* Attention::norm(const char* name, const NormSpec& spec, std::int64_t features) {
  return spec == NormSpec() ? nullptr : &add_norm(name, spec, features);
}

Linear& Attention::linear(const std::string& name, std::int64_t out, const Init& init) {
  return add<Linear>(
      name,
      {.in = o.dim, .out = out, .bias = o.qkv_bias, .weight_init = init, .bias_init = o.bias_init});
}

Attention::Attention(Options options)
    : o(checked(std::move(options))),
      head_scale(
          add_parameter("head_scale", Tensor::ones({o.heads}), Role::NormScale, o.head_scale)),
      fused_(o.fused ? &linear(o.names.fused, (o.heads + 2 * o.kv_heads) * o.head_dim,
                               by_rows(o.weight_init, o.value_init,
                                       (o.heads + o.kv_heads) * o.head_dim))
                     : nullptr),
      query_(o.fused ? nullptr : &linear(o.names.query, o.heads * o.head_dim, o.weight_init)),
      key_(o.fused ? nullptr : &linear(o.names.key, o.kv_heads * o.head_dim, o.weight_init)),
      value_(o.fused ? nullptr : &linear(o.names.value, o.kv_heads * o.head_dim, o.value_init)),
      query_norm_(norm("q_norm", o.qk_norm, (o.qk_norm_per_head ? 1 : o.heads) * o.head_dim)),
      key_norm_(norm("k_norm", o.qk_norm, (o.qk_norm_per_head ? 1 : o.kv_heads) * o.head_dim)),
      value_norm_(norm("v_norm", o.v_norm, o.head_dim)),
      output_(add<Linear>(o.names.output, {.in = o.heads * o.head_dim,
                                           .out = o.dim,
                                           .bias = o.out_bias,
                                           .weight_init = o.out_init,
                                           .bias_init = o.bias_init})),
      output_norm_(norm("norm", o.out_norm, o.dim)),
      weight_dropout_(o.dropout > 0.0 ? &add<Dropout>("attn_dropout", {.p = o.dropout}) : nullptr),
      output_dropout_(o.dropout > 0.0 ? &add<Dropout>("resid_dropout", {.p = o.dropout})
                                      : nullptr) {}

void Attention::check(const Tensor& x, const AttentionInputs& inputs) const {
  check_defined("Attention", "x", x);
  STEADY_CHECK(ShapeError, x.rank() == 3 && x.dim(2) == o.dim,
               "Attention: needs x [B, T, {}]; got x {}", o.dim, steady::describe(x));
  if (inputs.memory.defined()) {
    STEADY_CHECK(Error, !o.fused && !o.causal && inputs.cache == nullptr,
                 "Attention: a memory needs causal = false, fused = false and no cache");
    STEADY_CHECK(ShapeError,
                 inputs.memory.rank() == 3 && inputs.memory.dim(0) == x.dim(0) &&
                     inputs.memory.dim(2) == o.dim,
                 "Attention: memory must be [{}, Tk, {}]; got {}", x.dim(0), o.dim,
                 steady::describe(inputs.memory));
  }
  if (inputs.cache == nullptr) return;
  STEADY_CHECK(Error, o.causal && !inputs.mask.defined(),
               "Attention: a cache needs causal = true and no mask");
}

Attention::Heads Attention::project(const Tensor& x, const Tensor& memory) {
  const auto cut = [&](const Tensor& t, std::int64_t heads, Layer* norm, bool per_head) {
    const Tensor whole = norm == nullptr || per_head ? t : (*norm)(t);
    const Tensor y = reshape(whole, {t.dim(0), t.dim(1), heads, o.head_dim});
    return norm == nullptr || !per_head ? y : (*norm)(y);
  };
  std::vector<Tensor> t;
  if (fused_ != nullptr) {
    const std::int64_t shared = o.kv_heads * o.head_dim;
    t = split((*fused_)(x), {o.heads * o.head_dim, shared, shared});
  } else {
    const Tensor& source = memory.defined() ? memory : x;
    t = {(*query_)(x), (*key_)(source), (*value_)(source)};
  }
  return {.q = cut(t[0], o.heads, query_norm_, o.qk_norm_per_head),
          .k = cut(t[1], o.kv_heads, key_norm_, o.qk_norm_per_head),
          .v = cut(t[2], o.kv_heads, value_norm_, true)};
}

Tensor Attention::attend(const Tensor& x, const AttentionInputs& inputs,
                         detail::AttentionScores* scores) {
  check(x, inputs);
  Heads h = project(x, inputs.memory);
  AttentionOptions options{.causal = o.causal, .mask = inputs.mask, .scale = o.scale};
  if (o.rotary.has_value()) {
    RotaryOptions rotation = *o.rotary;
    if (inputs.cache != nullptr) rotation.offset += inputs.cache->length();
    h.q = rotary(h.q, rotation);
    h.k = rotary(h.k, rotation);
  }
  if (inputs.cache != nullptr) {
    options.keys = inputs.cache->length() + x.dim(1);
    const KeyValueCache::Entry& held = inputs.cache->append(inputs.cache_layer, h.k, h.v);
    h.k = held.keys;
    h.v = held.values;
  }
  if (scores != nullptr) {
    const double scale = o.scale != 0.0 ? o.scale : 1.0 / std::sqrt(double(o.head_dim));
    *scores = {h.q,      h.k,   inputs.mask,
               o.causal, scale, options.keys != 0 ? options.keys : h.k.dim(1)};
  }
  const std::string stream = weight_dropout_ == nullptr ? "" : weight_dropout_->path();
  if (weight_dropout_ != nullptr && weight_dropout_->mode() == Mode::Train) {
    options.dropout = o.dropout;
    options.seed = weight_dropout_->seed();
    options.stream = stream;
    options.call = weight_dropout_->next_call();
  }
  Tensor y = attention(h.q, h.k, h.v, options);
  if (o.head_scale) y = y * reshape(head_scale, {o.heads, 1});
  y = output_(reshape(y, {x.dim(0), x.dim(1), o.heads * o.head_dim}));
  if (output_norm_ != nullptr) y = (*output_norm_)(y);
  return output_dropout_ == nullptr ? y : (*output_dropout_)(y);
}

Tensor Attention::operator()(const Tensor& x, const AttentionInputs& inputs) {
  detail::AttentionScores scores;
  return run(
      x, [&](const Tensor& input) { return attend(input, inputs, &scores); },
      [&](const MeasureSink& sink) { detail::measure_attention(sink, scores); });
}

std::string Attention::describe() const {
  std::string text = fmt::format("Attention({}, heads={}", o.dim, o.heads);
  if (o.kv_heads != o.heads) text += fmt::format(", kv_heads={}", o.kv_heads);
  if (o.head_dim * o.heads != o.dim) text += fmt::format(", head_dim={}", o.head_dim);
  if (!(o.qk_norm == NormSpec())) text += ", qk_norm=" + to_string(o.qk_norm);
  if (o.rotary.has_value()) {
    text += fmt::format(", rotary={} theta={}",
                        o.rotary->style == RotaryStyle::HalfSplit ? "half-split" : "interleaved",
                        o.rotary->theta);
  }
  return text + (o.causal ? ", causal)" : ")");
}

}  // namespace steady
