// How to write a layer of your own out of other layers, and use it in a model.
//
//   build/bin/own_layer
//
// Squeeze-and-excitation [Hu et al. 2018]: each channel of an image is multiplied by a number in
// (0, 1) that a small network computes from the means of all channels. The layer owns two others;
// naming, initial values, saving, clone(), to(dtype), freezing and probes follow from that.
// Expected: a table of the model and a test accuracy above 80 %; exit code 0.
#include <cstdio>
#include <iostream>
#include <steadygrad/steadygrad.hpp>

using namespace steady;

struct SqueezeExcite : Layer {
  struct Options {
    std::int64_t channels = 0;
    std::int64_t reduction = 4;  ///< channels per hidden unit
  };
  explicit SqueezeExcite(const Options& options) : o(options) {
    STEADY_CHECK(Error, o.channels >= 1 && o.reduction >= 1 && o.channels % o.reduction == 0,
                 "SqueezeExcite: channels must be a multiple of reduction; got {} and {}",
                 o.channels, o.reduction);
  }
  const Options o;
  Linear& down = add<Linear>("down", {.in = o.channels, .out = o.channels / o.reduction});
  Linear& up = add<Linear>("up", {.in = o.channels / o.reduction, .out = o.channels});

  Tensor forward(const Tensor& x) override {  // x: [N, H, W, C]
    const Tensor gate = sigmoid(up(relu(down(mean(x, {1, 2})))));
    return x * reshape(gate, {x.dim(0), 1, 1, o.channels});
  }
  std::string describe() const override { return fmt::format("SqueezeExcite({})", o.channels); }
};

struct Model : Layer {
  struct Options {};
  explicit Model(Options options) : o(options) {}
  Options o;
  Conv2d& conv = add<Conv2d>("conv", {.in = 1, .out = 16, .padding = 1, .bias = false});
  Layer& norm = add_norm("norm", NormSpec::parse("batch"), 16);
  SqueezeExcite& excite = add<SqueezeExcite>("excite", {.channels = 16});
  Linear& head = add<Linear>("head", {.in = 784, .out = 10});  // 7 x 7 x 16

  Tensor forward(const Tensor& x) override {
    return head(flatten(max_pool2d(excite(relu(norm(conv(x)))), 4), 1));
  }
};

int main() {
  const TrainTest digits = make_glyphs({.train = 2000, .test = 500});
  Model model({});
  model.initialize(/*seed=*/1);
  std::cout << model.summary();
  AdamW optimizer(model.parameters(), {.lr = 3e-3});
  for (const Batch& batch : batches(digits.train, {.size = 32, .seed = 1})) {
    Tape tape;
    optimizer.step(tape.backward(cross_entropy(model(batch.x), batch.y)));
  }
  model.eval();
  const double right = static_cast<double>(count_correct(model(digits.test.x), digits.test.y));
  const double accuracy = 100.0 * right / static_cast<double>(digits.test.size());
  std::printf("test accuracy %.1f %%\n", accuracy);
  return accuracy > 80 ? 0 : 1;
}
