#include <torch/torch.h>

#include <cmath>

#include "bench/trainer.hpp"

namespace steady::bench {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

/// RMSNorm as it is written with this library: from primitive operations.
struct RmsImpl : nn::Module {
  explicit RmsImpl(std::int64_t dim) : weight(register_parameter("weight", torch::ones({dim}))) {}
  Tensor weight;
  Tensor forward(const Tensor& x) {
    return x * torch::rsqrt(x.pow(2).mean({-1}, true) + 1e-6) * weight;
  }
};
TORCH_MODULE(Rms);

struct BlockImpl : nn::Module {
  explicit BlockImpl(const DecoderSizes& sizes)
      : s(sizes),
        q(linear("q", s.dim, s.dim)),
        kv(linear("kv", s.dim, 2 * s.dim * s.kv_heads / s.heads)),
        o(linear("o", s.dim, s.dim)),
        up(linear("up", s.dim, s.llama ? 2 * s.hidden : s.hidden)),
        down(linear("down", s.hidden, s.dim)) {
    if (s.llama) {
      rms1 = register_module("rms1", Rms(s.dim));
      rms2 = register_module("rms2", Rms(s.dim));
    } else {
      ln1 = register_module("ln1", nn::LayerNorm(nn::LayerNormOptions({s.dim})));
      ln2 = register_module("ln2", nn::LayerNorm(nn::LayerNormOptions({s.dim})));
    }
  }
  nn::Linear linear(const char* name, std::int64_t in, std::int64_t out) {
    return register_module(name, nn::Linear(nn::LinearOptions(in, out).bias(!s.llama)));
  }
  static Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin) {
    const std::vector<Tensor> half = x.chunk(2, -1);
    return x * cos + torch::cat({-half[1], half[0]}, -1) * sin;
  }
  Tensor attention(const Tensor& x, const Tensor& mask, const Tensor& cos, const Tensor& sin) {
    const std::int64_t d = s.dim / s.heads;
    const auto heads_first = [&](const Tensor& t, std::int64_t heads) {
      return t.view({x.size(0), x.size(1), heads, d}).transpose(1, 2);
    };
    Tensor queries = heads_first(q(x), s.heads);
    const std::vector<Tensor> both = kv(x).chunk(2, -1);
    Tensor keys = heads_first(both[0], s.kv_heads);
    Tensor values = heads_first(both[1], s.kv_heads);
    if (s.llama) {
      queries = rotate(queries, cos, sin);
      keys = rotate(keys, cos, sin);
    }
    if (s.kv_heads != s.heads) {
      keys = keys.repeat_interleave(s.heads / s.kv_heads, 1);
      values = values.repeat_interleave(s.heads / s.kv_heads, 1);
    }
    Tensor scores = torch::matmul(queries, keys.transpose(-2, -1)) / std::sqrt(double(d));
    scores = scores.masked_fill(mask, -std::numeric_limits<float>::infinity());
    const Tensor y = torch::matmul(torch::softmax(scores, -1), values);
    return o(y.transpose(1, 2).reshape_as(x));
  }
  Tensor mlp(const Tensor& x) {
    if (!s.llama) return down(torch::gelu(up(x)));
    const std::vector<Tensor> both = up(x).chunk(2, -1);
    return down(torch::silu(both[0]) * both[1]);
  }
  Tensor forward(Tensor x, const Tensor& mask, const Tensor& cos, const Tensor& sin) {
    x = x + attention(s.llama ? rms1(x) : ln1(x), mask, cos, sin);
    return x + mlp(s.llama ? rms2(x) : ln2(x));
  }
  DecoderSizes s;
  nn::Linear q, kv, o, up, down;
  Rms rms1{nullptr}, rms2{nullptr};
  nn::LayerNorm ln1{nullptr}, ln2{nullptr};
};
TORCH_MODULE(Block);

struct DecoderImpl : nn::Module {
  explicit DecoderImpl(const DecoderSizes& sizes) : s(sizes) {
    embedding = register_module("embedding", nn::Embedding(s.vocabulary, s.dim));
    if (s.llama) {
      rms = register_module("rms", Rms(s.dim));
    } else {
      positions = register_module("positions", nn::Embedding(s.context, s.dim));
      ln = register_module("ln", nn::LayerNorm(nn::LayerNormOptions({s.dim})));
    }
    for (std::int64_t i = 0; i < s.layers; ++i) blocks->push_back(Block(s));
    register_module("blocks", blocks);
    mask = torch::triu(torch::ones({s.context, s.context}, torch::kBool), 1);
    const std::int64_t d = s.dim / s.heads;
    const Tensor rate = torch::pow(10000.0, -torch::arange(0, d, 2, torch::kFloat) / double(d));
    const Tensor angle = torch::outer(torch::arange(s.context, torch::kFloat), rate);
    cos = torch::cat({angle.cos(), angle.cos()}, -1);
    sin = torch::cat({angle.sin(), angle.sin()}, -1);
    for (const Tensor& p : parameters()) {
      if (p.dim() == 2) nn::init::normal_(p, 0.0, 0.02);
    }
  }
  Tensor forward(const Tensor& ids) {
    Tensor x = embedding(ids);
    if (!s.llama) x = x + positions(torch::arange(s.context));
    for (const auto& block : *blocks) x = block->as<BlockImpl>()->forward(x, mask, cos, sin);
    return torch::matmul(s.llama ? rms(x) : ln(x), embedding->weight.t());
  }
  DecoderSizes s;
  nn::Embedding embedding{nullptr}, positions{nullptr};
  Rms rms{nullptr};
  nn::LayerNorm ln{nullptr};
  nn::ModuleList blocks;
  Tensor mask, cos, sin;
};
TORCH_MODULE(Decoder);

class TorchDecoder : public Trainer {
 public:
  TorchDecoder(const DecoderSizes& s, const TokenBatch& batch)
      : model_(s),
        optimizer_(model_->parameters(), torch::optim::AdamWOptions(1e-3).weight_decay(0.01)) {
    const auto copy = [&](std::span<const std::int64_t> values) {
      return torch::from_blob(const_cast<std::int64_t*>(values.data()), {s.batch, s.context},
                              torch::kInt64)
          .clone();
    };
    ids_ = copy(batch.ids);
    targets_ = copy(batch.targets).view({-1});
  }
  double step() override {
    optimizer_.zero_grad();
    const Tensor logits = model_->forward(ids_);
    const Tensor loss =
        torch::nn::functional::cross_entropy(logits.view({-1, logits.size(-1)}), targets_);
    loss.backward();
    optimizer_.step();
    return loss.item<double>();
  }

 private:
  Decoder model_;
  torch::optim::AdamW optimizer_;
  Tensor ids_;
  Tensor targets_;
};

}  // namespace

std::unique_ptr<Trainer> make_torch_decoder(const DecoderSizes& sizes, const TokenBatch& batch,
                                            int threads) {
  torch::set_num_threads(threads);
  return std::make_unique<TorchDecoder>(sizes, batch);
}

}  // namespace steady::bench
