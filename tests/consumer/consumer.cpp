// A program outside the tree: a small classifier with a norm chosen by text.
//
// Prints the versions and ends with exit code 0 when the loss falls and the library is the one that
// the headers belong to.
#include <cmath>
#include <cstdio>
#include <steadygrad/steadygrad.hpp>
#include <steadygrad/version.hpp>

using namespace steady;

struct Classifier : Layer {
  struct Options {
    NormSpec norm = NormSpec::parse("layer");
  };
  explicit Classifier(Options options) : o(std::move(options)) {}

  Options o;
  Linear& up = add<Linear>("up", {.in = 2, .out = 32});
  Layer& norm = add_norm("norm", o.norm, 32);
  Linear& head = add<Linear>("head", {.in = 32, .out = 2});

  Tensor forward(const Tensor& x) override { return head(gelu(norm(up(x)))); }
};

/// Points in a disc and around it.
Batch make_rings(std::int64_t count) {
  Batch batch{.x = Tensor::empty({count, 2}), .y = Tensor::empty({count}, Dtype::I64)};
  Random random(1, "rings");
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t ring = i % 2;
    const double radius = static_cast<double>(ring) + 0.3 * random.uniform();
    const double angle = 6.283185307179586 * random.uniform();
    const auto at = static_cast<std::size_t>(i);
    batch.x.mutable_data<float>()[2 * at] = static_cast<float>(radius * std::cos(angle));
    batch.x.mutable_data<float>()[2 * at + 1] = static_cast<float>(radius * std::sin(angle));
    batch.y.mutable_data<std::int64_t>()[at] = ring;
  }
  return batch;
}

int main() {
  Classifier model({.norm = NormSpec::parse("rms(eps=1e-6)")});
  model.initialize(/*seed=*/1);
  AdamW optimizer(model.parameters(), {.lr = 1e-2});
  const Batch rings = make_rings(128);
  double first = 0, last = 0;
  for (int step = 0; step < 100; ++step) {
    Tape tape;
    const Tensor loss = cross_entropy(model(rings.x), rings.y);
    optimizer.step(tape.backward(loss));
    last = loss.item();
    if (step == 0) first = last;
  }
  std::string version;
  for (const auto& [name, value] : library_facts()) {
    std::printf("%s: %s\n", name.c_str(), value.c_str());
    if (name == "steadygrad") version = value;
  }
  std::printf("loss %.3f, then %.3f\n", first, last);
  return version == STEADYGRAD_VERSION && last < first / 4 ? 0 : 1;
}
