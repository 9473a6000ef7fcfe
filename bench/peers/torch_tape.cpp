#include <torch/torch.h>

#include "bench/trainer.hpp"

namespace steady::bench {
namespace {

namespace nn = torch::nn;

class TorchMlp : public Trainer {
 public:
  explicit TorchMlp(bool adamw) {
    if (adamw) {
      optimizer_ = std::make_unique<torch::optim::AdamW>(model_->parameters(),
                                                         torch::optim::AdamWOptions(1e-3));
    } else {
      optimizer_ = std::make_unique<torch::optim::SGD>(
          model_->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
    }
  }
  double step() override {
    optimizer_->zero_grad();
    const torch::Tensor loss = torch::mse_loss(model_->forward(x_), y_);
    loss.backward();
    optimizer_->step();
    return loss.item<double>();
  }

 private:
  nn::Sequential model_{nn::Linear(16, 32), nn::Tanh(), nn::Linear(32, 16)};
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  torch::Tensor x_ = torch::randn({8, 16});
  torch::Tensor y_ = torch::randn({8, 16});
};

}  // namespace

std::function<void()> torch_chain(int n) {
  torch::set_num_threads(1);
  const torch::Tensor x = torch::ones({4}).set_requires_grad(true);
  const torch::Tensor c = torch::full({4}, 1.0001);
  return [=] {
    torch::Tensor y = x;
    for (int i = 0; i < n; i += 2) y = y * c + c;
    y.sum().backward();
    x.mutable_grad() = torch::Tensor();
  };
}

std::unique_ptr<Trainer> make_torch_mlp(bool adamw) {
  torch::set_num_threads(1);
  return std::make_unique<TorchMlp>(adamw);
}

}  // namespace steady::bench
