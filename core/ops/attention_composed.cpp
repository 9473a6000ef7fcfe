#include <cmath>
#include <limits>
#include <steadygrad/core/ops/attention_call.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/matmul.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/ops/softmax.hpp>
#include <vector>

// Axes in this file: Hkv key heads, G = H / Hkv query heads for each of them. Queries as
// [B, Hkv, G Tq, d], keys as [B, Hkv, Tk, d], scores and weights as [B, Hkv, G, Tq, Tk]: the heads
// of a group share their keys without a copy, and their gradients add up inside the products.

namespace steady::detail {
namespace {

constexpr double Infinity = std::numeric_limits<double>::infinity();

/// [B, T, Hkv G, d] -> [B, Hkv, G T, d].
Tensor heads_first(const Tensor& x, std::int64_t kv_heads) {
  const std::int64_t group = x.dim(2) / kv_heads;
  const Tensor split = reshape(x, {x.dim(0), x.dim(1), kv_heads, group, x.dim(3)});
  return reshape(permute(split, {0, 2, 3, 1, 4}), {x.dim(0), kv_heads, group * x.dim(1), x.dim(3)});
}

/// The reverse.
Tensor tokens_first(const Tensor& x, std::int64_t tokens, std::int64_t group) {
  const Tensor split = reshape(x, {x.dim(0), x.dim(1), group, tokens, x.dim(3)});
  return reshape(permute(split, {0, 3, 1, 2, 4}), {x.dim(0), tokens, x.dim(1) * group, x.dim(3)});
}

/// The keys in use, [B, Tk, Hkv, d] -> [B, Hkv, Tk, d].
Tensor keys_first(const AttentionCall& c, const Tensor& k) {
  return heads_first(c.keys == c.capacity ? k : slice(k, 1, 0, c.keys), c.kv_heads);
}

/// The reverse, with zeros for the keys that are not in use.
Tensor keys_back(const AttentionCall& c, const Tensor& x) {
  Tensor used = tokens_first(x, c.keys, 1);
  if (c.keys == c.capacity) return used;
  const Tensor rest = Tensor::zeros({c.batch, c.capacity - c.keys, c.kv_heads, c.width}, x.dtype());
  return concat({used, rest}, 1);
}

/// Which keys a query sees, [B, 1, 1, Tq, Tk], and the score of the others: -inf, or 0 for a query
/// that sees none, [B, 1, 1, Tq, 1].
struct Visible {
  Tensor keys;
  Tensor fill;
};

Visible visible(const AttentionCall& c, const Tensor& mask, Dtype dtype) {
  const Tensor kept = mask.defined() ? mask.detached_copy(Dtype::I64) : Tensor{};
  Tensor keys = Tensor::zeros({c.batch, 1, 1, c.queries, c.keys}, Dtype::I32);
  Tensor fill = Tensor::zeros({c.batch, 1, 1, c.queries, 1}, Dtype::F64);
  auto out = keys.mutable_data<std::int32_t>().begin();
  auto other = fill.mutable_data<double>().begin();
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t i = 0; i < c.queries; ++i, ++other) {
      for (std::int64_t j = 0; j < c.keys; ++j, ++out) {
        const bool past = !c.causal || j <= i + c.keys - c.queries;
        const auto at = static_cast<std::size_t>(b * c.capacity + j);
        *out = past && (!kept.defined() || kept.data<std::int64_t>()[at] != 0) ? 1 : 0;
        if (*out != 0) *other = -Infinity;
      }
    }
  }
  return {keys, fill.detached_copy(dtype)};
}

/// softmax(scale q k^T), 0 where a key is not seen. q, k as above.
Tensor weights(const AttentionCall& c, const Tensor& q, const Tensor& k, const Tensor& mask) {
  const Shape shape{c.batch, c.kv_heads, c.heads / c.kv_heads, c.queries, c.keys};
  const Tensor scores = reshape(matmul(q, k, {.transpose_b = true}) * c.scale, shape);
  const Visible seen = visible(c, mask, q.dtype());
  return where(seen.keys, softmax(where(seen.keys, scores, seen.fill)),
               Tensor::scalar(0, q.dtype()));
}

/// x times the factors of the dropout, 0 or 1 / (1 - p). x: [B, Hkv, G, Tq, Tk].
Tensor dropped(const AttentionCall& c, const Tensor& x) {
  if (c.threshold == 0) return x;
  Tensor factors = Tensor::empty(x.shape(), Dtype::F64);
  std::vector<std::uint32_t> words(static_cast<std::size_t>(x.numel()));
  c.stream.words(c.first_word, words);
  const auto out = factors.mutable_data<double>();
  for (std::size_t i = 0; i < words.size(); ++i)
    out[i] = words[i] < c.threshold ? 0.0 : c.keep_scale;
  return x * factors.detached_copy(x.dtype());
}

/// The two axes of a group as one: [B, Hkv, G Tq, Tk].
Tensor joined(const AttentionCall& c, const Tensor& x) {
  return reshape(x, {c.batch, c.kv_heads, c.heads / c.kv_heads * c.queries, c.keys});
}

}  // namespace

Tensor composed_forward(const AttentionCall& c, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& mask) {
  const Tensor p = weights(c, heads_first(q, c.kv_heads), keys_first(c, k), mask);
  return tokens_first(matmul(joined(c, dropped(c, p)), keys_first(c, v)), c.queries,
                      c.heads / c.kv_heads);
}

std::array<Tensor, 3> composed_backward(const AttentionCall& c, const Tensor& dy, const Tensor& q,
                                        const Tensor& k, const Tensor& v, const Tensor& mask) {
  const Tensor queries = heads_first(q, c.kv_heads);
  const Tensor keys = keys_first(c, k);
  const Tensor dout = heads_first(dy, c.kv_heads);
  const Tensor p = weights(c, queries, keys, mask);
  const Tensor dv = matmul(joined(c, dropped(c, p)), dout, {.transpose_a = true});
  const Tensor dp =
      dropped(c, reshape(matmul(dout, keys_first(c, v), {.transpose_b = true}), p.shape()));
  const Tensor ds = joined(c, p * (dp - sum(p * dp, {-1}, /*keepdim=*/true)) * c.scale);
  return {tokens_first(matmul(ds, keys), c.queries, c.heads / c.kv_heads),
          keys_back(c, matmul(ds, queries, {.transpose_a = true})), keys_back(c, dv)};
}

}  // namespace steady::detail

namespace steady {

Tensor composed_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          const AttentionOptions& options) {
  return detail::composed_forward(detail::check_attention(q, k, v, options), q, k, v, options.mask);
}

}  // namespace steady
