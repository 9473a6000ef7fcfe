#include <torch/torch.h>

#include "bench/peers/peers.hpp"

namespace steady::bench {
namespace {

struct NetImpl : torch::nn::Module {
  torch::nn::Conv2d conv1 = register_module("conv1", conv(1, 32));
  torch::nn::BatchNorm2d bn1 = register_module("bn1", torch::nn::BatchNorm2d(32));
  torch::nn::Conv2d conv2 = register_module("conv2", conv(32, 64));
  torch::nn::BatchNorm2d bn2 = register_module("bn2", torch::nn::BatchNorm2d(64));
  torch::nn::Conv2d conv3 = register_module("conv3", conv(64, 64));
  torch::nn::BatchNorm2d bn3 = register_module("bn3", torch::nn::BatchNorm2d(64));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(64, 10));

  static torch::nn::Conv2d conv(std::int64_t in, std::int64_t out) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1).bias(false));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(bn1(conv1(x)));
    x = torch::max_pool2d(torch::relu(bn2(conv2(x))), 2);
    x = torch::relu(bn3(conv3(x)));
    return head(x.mean({2, 3}));
  }
};
TORCH_MODULE(Net);

class TorchCnn : public Trainer {
 public:
  TorchCnn(std::span<const float> images, std::span<const std::int64_t> labels)
      : optimizer_(net_->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)) {
    const auto n = static_cast<std::int64_t>(labels.size());
    x_ = torch::from_blob(const_cast<float*>(images.data()), {n, 1, 28, 28}).clone();
    y_ = torch::from_blob(const_cast<std::int64_t*>(labels.data()), {n}, torch::kInt64).clone();
  }
  double step() override {
    optimizer_.zero_grad();
    const torch::Tensor loss = torch::nn::functional::cross_entropy(net_->forward(x_), y_);
    loss.backward();
    optimizer_.step();
    return loss.item<double>();
  }

 private:
  Net net_;
  torch::optim::SGD optimizer_;
  torch::Tensor x_;
  torch::Tensor y_;
};

}  // namespace

std::unique_ptr<Trainer> make_torch_cnn(std::span<const float> images,
                                        std::span<const std::int64_t> labels, int threads) {
  torch::set_num_threads(threads);
  return std::make_unique<TorchCnn>(images, labels);
}

}  // namespace steady::bench
