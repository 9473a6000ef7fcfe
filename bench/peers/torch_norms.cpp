#include <ATen/Parallel.h>
#include <torch/torch.h>

#include "bench/torch_norms.hpp"

namespace steady::bench {
namespace {

constexpr std::array<bool, 3> AllGradients{true, true, true};

/// The benchmark's memory as tensors.
struct RowTensors {
  explicit RowTensors(const RowInput& in)
      : x(torch::from_blob(in.x, {in.rows, in.width})),
        dy(torch::from_blob(in.dy, {in.rows, in.width})),
        gamma(torch::from_blob(in.gamma, {in.width})),
        beta(torch::from_blob(in.beta, {in.width})) {}
  torch::Tensor x, dy, gamma, beta;
};

torch::Tensor images_of(const ImageInput& in, float* data) {
  const std::int64_t n = in.images, c = in.channels, s = in.size;
  if (s == 0) return torch::from_blob(data, {n, c});
  if (!in.last) return torch::from_blob(data, {n, c, s, s});
  return torch::from_blob(data, {n, c, s, s}, {c * s * s, 1, c * s, c});
}

struct ImageTensors {
  explicit ImageTensors(const ImageInput& in)
      : x(images_of(in, in.x)),
        dy(images_of(in, in.dy)),
        gamma(torch::from_blob(in.gamma, {in.channels})),
        beta(torch::from_blob(in.beta, {in.channels})) {}
  torch::Tensor x, dy, gamma, beta;
};

}  // namespace

void torch_threads(int n) { at::set_num_threads(n); }

std::function<void()> torch_layer_norm(const RowInput& in, bool backward) {
  const RowTensors t(in);
  const std::vector<std::int64_t> shape{in.width};
  const auto forward = [=] {
    const torch::NoGradGuard guard;
    return at::native_layer_norm(t.x, shape, t.gamma, t.beta, 1e-5);
  };
  if (!backward) return [=] { forward(); };
  const torch::Tensor mean = std::get<1>(forward()), rstd = std::get<2>(forward());
  return [=] {
    const torch::NoGradGuard guard;
    at::native_layer_norm_backward(t.dy, t.x, shape, mean, rstd, t.gamma, t.beta, AllGradients);
  };
}

std::function<void()> torch_rms_norm(const RowInput& in, bool backward) {
  const RowTensors t(in);
  const auto forward = [](const torch::Tensor& x, const torch::Tensor& gamma) {
    return x * torch::rsqrt(x.square().mean(-1, true) + 1e-6) * gamma;
  };
  if (!backward) {
    return [=] {
      const torch::NoGradGuard guard;
      forward(t.x, t.gamma);
    };
  }
  const torch::Tensor x = t.x.detach().requires_grad_();
  const torch::Tensor gamma = t.gamma.detach().requires_grad_();
  const torch::Tensor y = forward(x, gamma);
  return [=, dy = t.dy] { torch::autograd::grad({y}, {x, gamma}, {dy}, true); };
}

std::function<void()> torch_softmax(const RowInput& in, bool backward) {
  const RowTensors t(in);
  const auto forward = [=] {
    const torch::NoGradGuard guard;
    return at::_softmax(t.x, 1, false);
  };
  if (!backward) return [=] { forward(); };
  return [y = forward(), dy = t.dy] {
    const torch::NoGradGuard guard;
    at::_softmax_backward_data(dy, y, 1, at::kFloat);
  };
}

std::function<void()> torch_batch_norm(const ImageInput& in, bool backward) {
  const ImageTensors t(in);
  const torch::Tensor mean = torch::zeros({in.channels}), var = torch::ones({in.channels});
  const auto forward = [=] {
    const torch::NoGradGuard guard;
    return at::native_batch_norm(t.x, t.gamma, t.beta, mean, var, true, 0.1, 1e-5);
  };
  if (!backward) return [=] { forward(); };
  const auto [y, save_mean, save_rstd] = forward();
  return [=, a = save_mean, b = save_rstd] {
    const torch::NoGradGuard guard;
    at::native_batch_norm_backward(t.dy, t.x, t.gamma, mean, var, a, b, true, 1e-5, AllGradients);
  };
}

std::function<void()> torch_group_norm(const ImageInput& in, std::int64_t groups, bool backward) {
  const ImageTensors t(in);
  const std::int64_t n = in.images, c = in.channels, s = std::max<std::int64_t>(in.size, 1);
  const auto forward = [=] {
    const torch::NoGradGuard guard;
    return at::native_group_norm(t.x, t.gamma, t.beta, n, c, s * s, groups, 1e-5);
  };
  if (!backward) return [=] { forward(); };
  const torch::Tensor mean = std::get<1>(forward()), rstd = std::get<2>(forward());
  return [=] {
    const torch::NoGradGuard guard;
    at::native_group_norm_backward(t.dy, t.x, mean, rstd, t.gamma, n, c, s * s, groups,
                                   AllGradients);
  };
}

}  // namespace steady::bench
