#include <array>
#include <functional>
#include <steadygrad/steadygrad.hpp>

#include "bench/trainer.hpp"

namespace steady::bench {
namespace {

NormSpec batch_norm_spec() { return NormSpec::parse("batch"); }

struct Cnn : Layer {
  Conv2d& conv1 = add<Conv2d>("conv1", {.in = 1, .out = 32, .padding = 1, .bias = false});
  Layer& norm1 = add_norm("norm1", batch_norm_spec(), 32);
  Conv2d& conv2 = add<Conv2d>("conv2", {.in = 32, .out = 64, .padding = 1, .bias = false});
  Layer& norm2 = add_norm("norm2", batch_norm_spec(), 64);
  Conv2d& conv3 = add<Conv2d>("conv3", {.in = 64, .out = 64, .padding = 1, .bias = false});
  Layer& norm3 = add_norm("norm3", batch_norm_spec(), 64);
  Linear& head = add<Linear>("head", {.in = 64, .out = 10});

  Tensor forward(const Tensor& x) override {
    Tensor h = norm_relu(norm1, conv1(x));
    h = norm_relu_pool(norm2, conv2(h), 2);
    h = norm_relu(norm3, conv3(h));
    return head(global_avg_pool2d(h));
  }
};

struct BasicBlock : Layer {
  struct Options {
    std::int64_t in = 0, out = 0, stride = 1;
  };
  explicit BasicBlock(const Options& options) : o(options) {
    if (o.stride == 1 && o.in == o.out) return;
    project = &add<Conv2d>(
        "project",
        {.in = o.in, .out = o.out, .kernel = 1, .stride = o.stride, .padding = 0, .bias = false});
    project_norm = &add_norm("project_norm", batch_norm_spec(), o.out);
  }
  const Options o;
  Conv2d& conv1 = add<Conv2d>(
      "conv1", {.in = o.in, .out = o.out, .stride = o.stride, .padding = 1, .bias = false});
  Layer& norm1 = add_norm("norm1", batch_norm_spec(), o.out);
  Conv2d& conv2 = add<Conv2d>("conv2", {.in = o.out, .out = o.out, .padding = 1, .bias = false});
  Layer& norm2 = add_norm("norm2", batch_norm_spec(), o.out);
  Conv2d* project = nullptr;
  Layer* project_norm = nullptr;

  Tensor forward(const Tensor& x) override {
    const Tensor branch = norm2(conv2(norm_relu(norm1, conv1(x))));
    return relu(branch + (project == nullptr ? x : (*project_norm)((*project)(x))));
  }
};

struct ResNet : Layer {
  ResNet() {
    std::int64_t in = 16;
    for (const std::int64_t out : {16, 32, 64}) {
      for (int i = 0; i < 3; ++i) {
        const std::string name = fmt::format("block{}", blocks.size());
        blocks.push_back(
            &add<BasicBlock>(name, {.in = in, .out = out, .stride = in == out ? 1 : 2}));
        in = out;
      }
    }
  }
  Conv2d& conv = add<Conv2d>("conv", {.in = 3, .out = 16, .padding = 1, .bias = false});
  Layer& norm = add_norm("norm", batch_norm_spec(), 16);
  Linear& head = add<Linear>("head", {.in = 64, .out = 10});
  std::vector<BasicBlock*> blocks;

  Tensor forward(const Tensor& x) override {
    Tensor h = norm_relu(norm, conv(x));
    for (BasicBlock* block : blocks) h = (*block)(h);
    return head(global_avg_pool2d(h));
  }
};

/// What a forward under a tape keeps, without its result.
std::int64_t kept_by(const std::function<Tensor()>& forward) {
  const std::int64_t before = memory_stats().live;
  Tape tape;
  const Tensor loss = forward();
  return memory_stats().live - before;
}

template <class M>
class ImageTrainer : public Trainer {
 public:
  explicit ImageTrainer(const ImageBatch& b)
      : x_(Tensor::empty({b.count, b.size, b.size, b.channels}, Dtype::F32)),
        y_(Tensor::empty({b.count}, Dtype::I64)) {
    std::ranges::copy(b.images, x_.mutable_data<float>().begin());
    std::ranges::copy(b.labels, y_.mutable_data<std::int64_t>().begin());
    model_.initialize(1);
  }
  double step() override {
    Tape tape;
    const Tensor loss = cross_entropy(model_(x_), y_);
    optimizer_.step(backward_ ? backward_(tape, loss) : tape.backward(loss));
    return loss.item();
  }
  std::int64_t activation_bytes() override {
    return kept_by([&] { return cross_entropy(model_(x_), y_); });
  }
  Module* model() override { return &model_; }

 private:
  M model_;
  Sgd optimizer_{model_.parameters(), {.lr = 0.01, .momentum = 0.9}};
  Tensor x_;
  Tensor y_;
};

Decoder::Options decoder_options(const DecoderSizes& s) {
  const Decoder::Sizes sizes{s.vocabulary, s.context, s.dim, s.layers, s.heads};
  Decoder::Options o = s.llama ? Decoder::llama(sizes) : Decoder::gpt2(sizes);
  o.kv_heads = s.kv_heads;
  o.hidden = s.hidden;
  o.tied = true;
  o.recompute = s.recompute;
  if (!s.llama) o.mlp = MlpKind::Gelu;
  return o;
}

class DecoderTrainer : public Trainer {
 public:
  DecoderTrainer(const DecoderSizes& s, const TokenBatch& batch)
      : model_(decoder_options(s)),
        ids_(Tensor::empty({s.batch, s.context}, Dtype::I64)),
        targets_(Tensor::empty({s.batch, s.context}, Dtype::I64)) {
    std::ranges::copy(batch.ids, ids_.mutable_data<std::int64_t>().begin());
    std::ranges::copy(batch.targets, targets_.mutable_data<std::int64_t>().begin());
    model_.initialize(1);
  }
  double step() override {
    Tape tape;
    const Tensor loss = model_.loss(ids_, targets_);
    optimizer_.step(backward_ ? backward_(tape, loss) : tape.backward(loss));
    return loss.item();
  }
  std::int64_t activation_bytes() override {
    return kept_by([&] { return model_.loss(ids_, targets_); });
  }
  Module* model() override { return &model_; }

 private:
  Decoder model_;
  AdamW optimizer_{model_.parameters(), {.lr = 1e-3, .weight_decay = 0.01}};
  Tensor ids_;
  Tensor targets_;
};

}  // namespace

std::unique_ptr<Trainer> make_cnn(const ImageBatch& batch) {
  return std::make_unique<ImageTrainer<Cnn>>(batch);
}

std::unique_ptr<Trainer> make_resnet(const ImageBatch& batch) {
  return std::make_unique<ImageTrainer<ResNet>>(batch);
}

std::unique_ptr<Trainer> make_decoder(const DecoderSizes& sizes, const TokenBatch& batch) {
  return std::make_unique<DecoderTrainer>(sizes, batch);
}

}  // namespace steady::bench
