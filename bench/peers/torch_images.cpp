#include <torch/torch.h>

#include "bench/trainer.hpp"

namespace steady::bench {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

nn::Conv2d conv(std::int64_t in, std::int64_t out, std::int64_t kernel = 3,
                std::int64_t stride = 1) {
  return nn::Conv2d(
      nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

struct CnnImpl : nn::Module {
  nn::Conv2d conv1 = register_module("conv1", conv(1, 32));
  nn::BatchNorm2d bn1 = register_module("bn1", nn::BatchNorm2d(32));
  nn::Conv2d conv2 = register_module("conv2", conv(32, 64));
  nn::BatchNorm2d bn2 = register_module("bn2", nn::BatchNorm2d(64));
  nn::Conv2d conv3 = register_module("conv3", conv(64, 64));
  nn::BatchNorm2d bn3 = register_module("bn3", nn::BatchNorm2d(64));
  nn::Linear head = register_module("head", nn::Linear(64, 10));

  Tensor forward(Tensor x) {
    x = torch::relu(bn1(conv1(x)));
    x = torch::max_pool2d(torch::relu(bn2(conv2(x))), 2);
    x = torch::relu(bn3(conv3(x)));
    return head(x.mean({2, 3}));
  }
};
TORCH_MODULE(Cnn);

struct BasicBlockImpl : nn::Module {
  BasicBlockImpl(std::int64_t in, std::int64_t out)
      : conv1(register_module("conv1", conv(in, out, 3, in == out ? 1 : 2))),
        bn1(register_module("bn1", nn::BatchNorm2d(out))),
        conv2(register_module("conv2", conv(out, out))),
        bn2(register_module("bn2", nn::BatchNorm2d(out))) {
    if (in == out) return;
    project = register_module("project", conv(in, out, 1, 2));
    project_bn = register_module("project_bn", nn::BatchNorm2d(out));
  }
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  nn::Conv2d project{nullptr};
  nn::BatchNorm2d project_bn{nullptr};

  Tensor forward(const Tensor& x) {
    const Tensor branch = bn2(conv2(torch::relu(bn1(conv1(x)))));
    return torch::relu(branch + (project.is_empty() ? x : project_bn(project(x))));
  }
};
TORCH_MODULE(BasicBlock);

struct ResNetImpl : nn::Module {
  ResNetImpl() {
    std::int64_t in = 16;
    for (const std::int64_t out : {16, 32, 64}) {
      for (int i = 0; i < 3; ++i) {
        blocks->push_back(BasicBlock(in, out));
        in = out;
      }
    }
    register_module("blocks", blocks);
  }
  nn::Conv2d first = register_module("first", conv(3, 16));
  nn::BatchNorm2d bn = register_module("bn", nn::BatchNorm2d(16));
  nn::Sequential blocks;
  nn::Linear head = register_module("head", nn::Linear(64, 10));

  Tensor forward(const Tensor& x) {
    return head(blocks->forward(torch::relu(bn(first(x)))).mean({2, 3}));
  }
};
TORCH_MODULE(ResNet);

template <class M>
class ImageTrainer : public Trainer {
 public:
  explicit ImageTrainer(const ImageBatch& b)
      : optimizer_(model_->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)) {
    x_ =
        torch::from_blob(const_cast<float*>(b.images.data()), {b.count, b.size, b.size, b.channels})
            .permute({0, 3, 1, 2})
            .contiguous()
            .clone();
    y_ = torch::from_blob(const_cast<std::int64_t*>(b.labels.data()), {b.count}, torch::kInt64)
             .clone();
  }
  double step() override {
    optimizer_.zero_grad();
    const Tensor loss = nn::functional::cross_entropy(model_->forward(x_), y_);
    loss.backward();
    optimizer_.step();
    return loss.item<double>();
  }

 private:
  M model_;
  torch::optim::SGD optimizer_;
  Tensor x_;
  Tensor y_;
};

}  // namespace

std::unique_ptr<Trainer> make_torch_cnn(const ImageBatch& batch, int threads) {
  torch::set_num_threads(threads);
  return std::make_unique<ImageTrainer<Cnn>>(batch);
}

std::unique_ptr<Trainer> make_torch_resnet(const ImageBatch& batch, int threads) {
  torch::set_num_threads(threads);
  return std::make_unique<ImageTrainer<ResNet>>(batch);
}

}  // namespace steady::bench
