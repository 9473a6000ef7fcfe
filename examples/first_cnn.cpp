// Trains a CNN with a norm of your choice: the program of the README.
//
//   build/bin/first_cnn
//
// Prints the loss every 100 steps, then how many test images it gets right. Without MNIST in data/
// (examples/data.sh brings it) it draws digits itself.
#include <cstdio>
#include <steadygrad/steadygrad.hpp>

using namespace steady;

struct Cnn : Layer {
  struct Options {
    NormSpec norm = NormSpec::parse("batch");
  };
  explicit Cnn(Options options) : o(options) {}

  Options o;
  Conv2d& conv1 = add<Conv2d>("conv1", {.in = 1, .out = 32, .padding = 1, .bias = false});
  Layer& norm1 = add_norm("norm1", o.norm, 32);
  Conv2d& conv2 = add<Conv2d>("conv2", {.in = 32, .out = 64, .padding = 1, .bias = false});
  Layer& norm2 = add_norm("norm2", o.norm, 64);
  Linear& head = add<Linear>("head", {.in = 3136, .out = 10});  // 7 x 7 x 64

  Tensor forward(const Tensor& x) override {  // x: [N, 28, 28, 1]
    Tensor h = max_pool2d(relu(norm1(conv1(x))), 2);
    h = max_pool2d(relu(norm2(conv2(h))), 2);
    return head(flatten(h, 1));  // [N, 10]
  }
};

int main() {
  const TrainTest digits = has_mnist("data") ? load_mnist("data") : make_glyphs();
  Cnn model({.norm = NormSpec::parse("rms(eps=1e-6)")});
  model.initialize(/*seed=*/42);
  Sgd optimizer(model.parameters(), {.lr = 0.01, .momentum = 0.9, .weight_decay = 5e-4});

  for (const Batch& batch : batches(digits.train, {.size = 64, .seed = 42})) {
    Tape tape;  // recording starts
    const Tensor loss = cross_entropy(model(batch.x), batch.y);
    const Gradients gradients = tape.backward(loss);  // and ends here
    optimizer.step(gradients);
    if (batch.index % 100 == 0) std::printf("step %3ld  loss %.3f\n", batch.index, loss.item());
  }
  model.eval();
  std::int64_t correct = 0;
  for (const Batch& batch : batches(digits.test, {.size = 500, .shuffle = false})) {
    correct += count_correct(model(batch.x), batch.y);
  }
  std::printf("%ld of %ld test images right\n", correct, digits.test.size());
}
